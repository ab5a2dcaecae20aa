"""Reads a sample of a topic: records from the beginning and from the end of every partition. Commits nothing.

Both ends are read because records differ in form after a producer has changed.
"""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.problems import nearest
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.client import ISOLATION
from glassflow_dagster.stores.kafka.consumer import (
    ANSWER_TIMEOUT,
    ask_metadata,
    convert_kafka_errors,
    open_consumer,
    unreachable,
)
from glassflow_dagster.stores.kafka.errors import TopicMissing
from glassflow_dagster.stores.kafka.records import RangeCount, Record, is_end, partition_and_offset, read_record
from glassflow_dagster.stores.kafka.topics import Offsets, offsets, offsets_if_there

# Bytes of record values in a sample: a thousand records of a megabyte each would need a gigabyte of memory.
SAMPLE_BYTES = 64 * 1024 * 1024
TOPICS_SHOWN = 10
FETCH_AT_ONCE = 500  # records per call of consume()

Ranges = dict[int, tuple[int, int]]  # partition -> [from, until) offsets


@dataclass(frozen=True)
class Sample:
    """Records of a topic, sorted by partition and offset.

    `partitions`: their number.
    `about`: the number of records in the topic, exact when all of them were read, else an upper limit, as transactions
        and compaction leave gaps in the offsets.
    `complete`: False when the time or memory limit ended the reading early.
    """

    records: tuple[Record, ...]
    partitions: int
    about: int
    complete: bool


def sample_records(connection: KafkaConnection, topic: str, limit: int, timeout_seconds: float) -> Sample:
    """Read about `limit` records, half of them from the beginning and half from the end of the partitions.

    Raises `TopicMissing` with similar topic names, `KafkaUnreachable`, and `GlassflowError` for an empty topic.
    """
    _require_topic(connection, topic)
    available = offsets(connection, topic)
    empty = f"topic {topic!r} on {', '.join(connection.brokers)} has no messages; send some first, then try again"
    if not any(high > low for low, high in available.values()):
        raise GlassflowError(empty)
    reader = _Reader(connection, topic, limit, time.monotonic() + timeout_seconds)
    everything: Ranges = {partition: (low, high) for partition, (low, high) in available.items() if low < high}
    for ranges in (*sample_ranges(available, limit), everything):
        # The whole topic is read only when both ends have no records, only markers and aborted transactions.
        if ranges is not everything or not reader.records:
            reader.read(ranges)
    if not reader.records and reader.complete:
        raise GlassflowError(empty)
    records = tuple(sorted(reader.records, key=lambda r: (r.partition, r.offset)))
    offset_count = sum(high - low for low, high in available.values())
    all_read = reader.complete and limit >= offset_count
    return Sample(
        records=records,
        partitions=len(available),
        about=len(records) if all_read else offset_count,
        complete=reader.complete,
    )


def sample_newest(connection: KafkaConnection, topic: str, limit: int, timeout_seconds: float) -> tuple[Record, ...]:
    """Read about `limit` records from the ends of the partitions; () where the topic is empty or does not exist.

    Raises `KafkaUnreachable`.
    """
    available = offsets_if_there(connection, topic) or {}
    share = -(-limit // max(1, sum(high > low for low, high in available.values())))
    reader = _Reader(connection, topic, limit, time.monotonic() + timeout_seconds)
    reader.read({p: (max(low, high - share), high) for p, (low, high) in available.items() if low < high})
    return tuple(sorted(reader.records, key=lambda record: (record.partition, record.offset)))


def sample_ranges(available: dict[int, Offsets], limit: int) -> tuple[Ranges, Ranges]:
    """Choose the ranges to read at the beginnings and at the ends of the partitions. available: their offsets.

    The limit is shared equally; what a small partition does not use goes to the larger ones. The ranges do not overlap.
    """
    first: Ranges = {}
    last: Ranges = {}
    remaining = limit
    by_size = sorted(available.items(), key=lambda entry: entry[1].high - entry[1].low)
    for index, (partition, (low, high)) in enumerate(by_size):
        # Rounded up, so that no partition is left without a record.
        share = min(-(-remaining // (len(by_size) - index)), high - low)
        remaining -= share
        middle = low + -(-share // 2)  # rounded up as well: a share of one record has no range at the end
        if share:
            first[partition] = (low, middle)
            last[partition] = (high - share // 2, high)
    return first, {partition: (start, end) for partition, (start, end) in last.items() if start < end}


@dataclass
class _Reader:
    """Collects records over several reads, until the limit of records, time or memory is reached."""

    connection: KafkaConnection
    topic: str
    limit: int
    deadline: float

    def __post_init__(self) -> None:
        """Begin without records; `complete` stays True unless the time or memory limit ends a read."""
        self.records: list[Record] = []
        self.complete = True
        self._bytes = 0

    def read(self, ranges: Ranges) -> None:
        """Read the ranges into `records`; `complete` becomes False when the time or memory limit ends the reading.

        Raises `KafkaUnreachable` when the time is over without a single record.
        """
        if not ranges:
            return
        settings = {"isolation.level": ISOLATION, "auto.offset.reset": "earliest", "enable.partition.eof": True}
        with open_consumer(self.connection, settings) as (consumer, errors):
            with convert_kafka_errors(self.connection, consumer, errors):
                self._consume(consumer, ranges)
            if not self.complete and not self.records:
                raise unreachable(self.connection, errors, f"sent nothing of {self.topic!r}")

    def _consume(self, consumer: Consumer, ranges: Ranges) -> None:
        """Consume the ranges with an open consumer until they are done or a limit is reached."""
        count = RangeCount(ranges)
        consumer.assign([TopicPartition(self.topic, partition, first) for partition, (first, _) in ranges.items()])
        while count.open_partitions and len(self.records) < self.limit:
            if self._bytes > SAMPLE_BYTES or time.monotonic() > self.deadline:
                self.complete = False
                return
            for message in consumer.consume(FETCH_AT_ONCE, timeout=0.5):
                partition, offset = partition_and_offset(message)
                _, until = ranges[partition]
                end = is_end(message)
                if not end and offset < until:
                    record = read_record(message)
                    self.records.append(record)
                    self._bytes += len(record.value or b"")
                count.observe(partition, offset, is_record=not end)


def _require_topic(connection: KafkaConnection, topic: str) -> None:
    """Raise `TopicMissing` when the topic does not exist; the message proposes existing topics."""
    with open_consumer(connection) as (consumer, errors):
        existing = ask_metadata(connection, consumer, errors, topic=None, timeout=ANSWER_TIMEOUT).topics
    if topic not in existing:
        where = ", ".join(connection.brokers)
        # Topics of Kafka itself (`__consumer_offsets`) are not proposed.
        advice = _advice(topic, sorted(name for name in existing if not name.startswith("__")))
        raise TopicMissing(f"topic {topic!r} does not exist on {where}, or is not visible to this user; {advice}")


def _advice(topic: str, names: list[str]) -> str:
    """Return the end of the error message: a topic with a similar name, else the first topics. names: sorted."""
    similar = nearest(topic, names)
    if similar:
        return f"did you mean {similar!r}?"
    if not names:
        return "the server has no topics; create this one and send messages"
    more = f" and {len(names) - TOPICS_SHOWN} more" if len(names) > TOPICS_SHOWN else ""
    return f"use one of {', '.join(names[:TOPICS_SHOWN])}{more}"
