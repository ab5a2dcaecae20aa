"""The number of records that Kafka has in the offset ranges of the ledger.

The number of offsets is an upper bound: no batch can have read more records. If the ledger, which counts records, read
exactly as many, the bound is the count. Otherwise (transactions, compaction) the records are consumed and counted, if
that takes no longer than a minute or so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals, ReadRange
from glassflow_dagster.stores.kafka.errors import TopicMissing
from glassflow_dagster.stores.kafka.records import count_records
from glassflow_dagster.stores.kafka.start_offsets import FIRST, NEXT, starting_offsets
from glassflow_dagster.stores.kafka.topic_pattern import matching_topics, with_topics
from glassflow_dagster.stores.kafka.topics import Offsets, cleanup_of, offsets

# Records; about a minute of reading at 100,000 records a second.
MAX_COUNTED = 5_000_000


class Proof(StrEnum):
    """The method by which the number of records is known; only OFFSETS and COUNTED are exact."""

    OFFSETS = "as many records as offsets"
    COUNTED = "counted one by one"
    PARTLY = "partly removed by retention"
    BOUND = "at most as many as offsets"
    COMPACTED = "partly removed by compaction"


@dataclass(frozen=True)
class Spans:
    """Numbers of offsets that were read, compared with the brokers' low and high watermarks.

    total: read offsets, or records where they were counted.
    expired: below the low watermark.
    unknown: at or above the high watermark (the topic was recreated).
    uncovered: between batches, in no batch of the ledger.
    repeated: in more than one batch.
    """

    total: int
    expired: int
    unknown: int
    uncovered: int
    repeated: int


@dataclass(frozen=True)
class KafkaCount:
    """The number of records that Kafka has of those that were read.

    `records` is exact for `OFFSETS` and `COUNTED`. For `PARTLY` it is the number of records left, for `BOUND` and
    `COMPACTED` an upper bound.
    """

    records: int
    proof: Proof
    spans: Spans

    @property
    def exact(self) -> bool:
        """True when `records` is exact."""
        return self.proof in (Proof.OFFSETS, Proof.COUNTED)


def count_kafka(config: PipelineConfig, totals: LedgerTotals, report: Callable[[str], None]) -> KafkaCount:
    """Return the number of Kafka's records in the ranges that the ledger has as read, and how it was found.

    The first of these methods that applies:

    - OFFSETS: Kafka has all offsets of the ranges, and the ledger has read as many records. Exact. Of the replay topic,
      to which dead letters are sent again, the records are counted first if they are not many more.
    - COMPACTED: a topic is compacted, so there are fewer records than offsets: the number of offsets, an upper bound.
    - BOUND: Kafka still has more than `MAX_COUNTED` of the offsets: the number of offsets, an upper bound.
    - COUNTED: the records, consumed and counted; none of a topic that was deleted or recreated (`gone`). Exact. PARTLY:
      the same where retention has removed some of them (`expired`).

    Raises `TopicMissing` or `KafkaUnreachable`.
    """
    connection, source = config.connection, config.source
    available = {topic: offsets(connection, topic) for topic in sorted({r.topic for r in totals.ranges if not r.gone})}
    spans, read = measure(totals.ranges, available), totals.outcomes.records
    if not spans.expired and not spans.unknown and spans.total == read:
        return KafkaCount(spans.total, Proof.OFFSETS, spans)
    # Replays are sent in transactions, whose markers occupy offsets, but they are few: count their records, so that the
    # sources themselves may still be exact by their offsets.
    replays = [r for r in totals.ranges if r.topic == config.replay_topic and not r.gone]
    replay_offsets = sum(replay.span for replay in replays)
    if replay_offsets <= MAX_COUNTED:
        counted = sum(_count_range(source, replay, available[replay.topic], report) for replay in replays)
        spans = replace(spans, total=spans.total - replay_offsets + counted)
        if not spans.expired and not spans.unknown and spans.total == read:
            return KafkaCount(spans.total, Proof.OFFSETS, spans)
    if cleanup_of(connection, available).compacted:
        return KafkaCount(spans.total, Proof.COMPACTED, spans)
    if spans.total - spans.expired > MAX_COUNTED:
        return KafkaCount(spans.total, Proof.BOUND, spans)
    records = sum(_count_range(source, r, available[r.topic], report) for r in totals.ranges if not r.gone)
    return KafkaCount(records, Proof.PARTLY if spans.expired else Proof.COUNTED, spans)


def count_unread(config: PipelineConfig) -> int:
    """Return how many records the first batches of a pipeline will read, by its start offsets: at most so many.

    0 for topics that do not exist. Raises `StartUnknown` or `KafkaUnreachable`.
    """
    try:
        if config.source.topic_pattern:
            config = with_topics(config, matching_topics(config))
        unread = 0
        for index, source in enumerate(config.inputs):
            for topic, firsts in starting_offsets(config, index).items():
                available = offsets(source.connection_params, topic)
                unread += sum(_unread(first, available[partition]) for partition, first in firsts.items())
    except TopicMissing:
        return 0
    return unread


def _unread(first: int, available: Offsets) -> int:
    """Return the offsets of a partition from one on, which may be `FIRST` or `NEXT`."""
    begin = {FIRST: available.low, NEXT: available.high}.get(first, first)
    return max(0, available.high - begin)


def measure(ranges: Iterable[ReadRange], available: Mapping[str, Mapping[int, Offsets]]) -> Spans:
    """Compare the ledger's ranges with the brokers' offsets (topic -> partition -> offsets).

    A partition that the brokers lack is unknown as a whole.
    """
    total = expired = unknown = uncovered = repeated = 0
    for read in ranges:
        if read.gone:
            # The topic has been deleted or recreated, so that its records cannot be counted any more.
            total += read.covered
            expired += read.covered
            continue
        present = available.get(read.topic, {}).get(read.partition, Offsets(0, 0))
        total += read.span - read.skipped
        expired += max(0, min(present.low, read.until) - read.first - read.skipped)
        unknown += max(0, read.until - max(present.high, read.first))
        uncovered += max(0, read.gap)
        repeated += max(0, -read.gap)
    return Spans(total=total, expired=expired, unknown=unknown, uncovered=uncovered, repeated=repeated)


def _count_range(
    source: Source, read: ReadRange, available: Mapping[int, Offsets], report: Callable[[str], None]
) -> int:
    """Consume and count the records that a partition still has of a range; 0 when the partition does not exist.

    available: the offsets of the topic by partition.
    """
    present = available.get(read.partition)
    if present is None:
        return 0
    span = (max(read.first, present.low), min(read.until, present.high))
    return count_records(source.connection_params, read.topic, {read.partition: span}, report, source.isolation)
