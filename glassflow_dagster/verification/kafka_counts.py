"""How many records Kafka holds of what the ledger says was read.

Offsets alone are an upper bound: no batch can have read more records than there are offsets. Where the ledger, which
counts records themselves, read exactly that many, the bound is the count. Otherwise (transactions, compaction) the
records are consumed and counted, as long as that is done in a minute or so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from glassflow_dagster.bookkeeping.totals import LedgerTotals, ReadRange
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source
from glassflow_dagster.kafka.records import count_records
from glassflow_dagster.kafka.topics import Offsets, cleanup_of, offsets

# About a minute of reading at 100,000 records a second.
MAX_COUNTED = 5_000_000


class Proof(StrEnum):
    """How sure the number of records is."""

    OFFSETS = "as many records as offsets"
    COUNTED = "counted one by one"
    PARTLY = "partly removed by retention"
    BOUND = "at most as many as offsets"
    COMPACTED = "partly removed by compaction"


@dataclass(frozen=True)
class Spans:
    """What was read, held against what the brokers still have; in offsets, but where records were counted.

    `expired` lie below the low watermark, `unknown` at or above the high one (the topic was recreated), `uncovered` in
    no batch of the ledger, `repeated` in more than one.
    """

    total: int
    expired: int
    unknown: int
    uncovered: int
    repeated: int


@dataclass(frozen=True)
class KafkaCount:
    """The records in Kafka of all that was read; `records` is exact for `OFFSETS` and `COUNTED` only.

    For `PARTLY` it counts what is left, for `BOUND` and `COMPACTED` it is an upper bound.
    """

    records: int
    proof: Proof
    spans: Spans

    @property
    def exact(self) -> bool:
        """Whether `records` is the number of records."""
        return self.proof in (Proof.OFFSETS, Proof.COUNTED)


def count_kafka(config: PipelineConfig, totals: LedgerTotals, report: Callable[[str], None]) -> KafkaCount:
    """Count the records of the ledger's ranges; raises `TopicMissing` or `KafkaUnreachable`."""
    connection, source = config.connection, config.source
    known = {topic: offsets(connection, topic) for topic in sorted({r.topic for r in totals.ranges})}
    spans, read = measure(totals.ranges, known), totals.outcomes.read
    if not spans.expired and not spans.unknown and spans.total == read:
        return KafkaCount(spans.total, Proof.OFFSETS, spans)
    # Replays are few and sent in transactions, which leave holes: counted, they leave the sources' own proof as it is.
    replays = [found for found in totals.ranges if found.topic == config.replay_topic]
    replayed = sum(found.span for found in replays)
    if replayed <= MAX_COUNTED:
        counted = sum(_count_range(source, found, known[found.topic], report) for found in replays)
        spans = replace(spans, total=spans.total - replayed + counted)
        if not spans.expired and not spans.unknown and spans.total == read:
            return KafkaCount(spans.total, Proof.OFFSETS, spans)
    if cleanup_of(connection, known).compacted:
        return KafkaCount(spans.total, Proof.COMPACTED, spans)
    if spans.total - spans.expired > MAX_COUNTED:
        return KafkaCount(spans.total, Proof.BOUND, spans)
    records = sum(_count_range(source, found, known[found.topic], report) for found in totals.ranges if not found.gone)
    return KafkaCount(records, Proof.PARTLY if spans.expired else Proof.COUNTED, spans)


def measure(ranges: Iterable[ReadRange], known: Mapping[str, Mapping[int, Offsets]]) -> Spans:
    """Hold what was read against the brokers' offsets; a partition that they lack is unknown as a whole."""
    total = expired = unknown = uncovered = repeated = 0
    for read in ranges:
        if read.gone:
            # Of a topic that is another one now, and of which nothing can be counted any more.
            total += read.covered
            expired += read.covered
            continue
        there = known.get(read.topic, {}).get(read.partition, Offsets(0, 0))
        total += read.span - read.skipped
        expired += max(0, min(there.low, read.until) - read.first - read.skipped)
        unknown += max(0, read.until - max(there.high, read.first))
        uncovered += max(0, read.gap)
        repeated += max(0, -read.gap)
    return Spans(total, expired, unknown, uncovered, repeated)


def _count_range(source: Source, read: ReadRange, known: Mapping[int, Offsets], report: Callable[[str], None]) -> int:
    there = known.get(read.partition)
    if there is None:
        return 0
    span = (max(read.first, there.low), min(read.until, there.high))
    return count_records(source.connection_params, read.topic, {read.partition: span}, report, source.isolation)
