"""Reads records by topic, partition and offset: to count the records that exist, and to fetch single ones."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.stores.kafka.client import ISOLATION
from glassflow_dagster.stores.kafka.consumer import convert_kafka_errors, open_consumer, unreachable
from glassflow_dagster.stores.kafka.errors import KafkaUnreachable

REPORT_INTERVAL = 2.0  # seconds between two reports while counting
STALL_TIMEOUT = 60.0  # seconds without a record or a partition's end, after which reading fails
MAX_GAP_READ = 1_000  # offsets; a longer gap is skipped by a seek, which discards the records fetched ahead
_FETCH_AT_ONCE = 10_000  # records per call of consume()


@dataclass(frozen=True)
class Record:
    """A record as stored in Kafka; `timestamp_ms` is None for a record without a timestamp."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordPosition(NamedTuple):
    """The topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int


class RangeCount:
    """Counts the records within [from, until) of each partition and tracks which partitions are done.

    A partition is done at offset `until` - 1, at any later offset, or at its end: the last offsets of the range may
    have no record.
    """

    def __init__(self, ranges: dict[int, tuple[int, int]]) -> None:
        """Begin with no records. ranges: partition -> [from, until); a partition with an empty range is done."""
        self._until = {partition: until for partition, (first, until) in ranges.items() if first < until}
        self.records = 0

    @property
    def open_partitions(self) -> list[int]:
        """The partitions that are not done, sorted."""
        return sorted(self._until)

    def observe(self, partition: int, offset: int, *, is_record: bool) -> None:
        """Count a record, or note a partition's end (its offset is the one after the last record)."""
        until = self._until.get(partition)
        if until is None:
            return
        if is_record and offset < until:
            self.records += 1
        if offset >= (until - 1 if is_record else until):
            del self._until[partition]


def count_records(
    connection: KafkaConnection,
    topic: str,
    ranges: dict[int, tuple[int, int]],
    report: Callable[[str], None],
    isolation: str = ISOLATION,
) -> int:
    """Consume `ranges` (partition -> [from, until)) and return the number of records in them.

    Subtracting offsets would not be exact: transaction markers take offsets, compaction and aborted transactions leave
    gaps. Records that retention removed are not counted. Raises `KafkaUnreachable` when the brokers stop answering.
    """
    count = RangeCount(ranges)
    total = sum(max(0, until - first) for first, until in ranges.values())
    settings = {"isolation.level": isolation, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    last_report = last_message = time.monotonic()
    with open_consumer(connection, settings) as (consumer, errors), convert_kafka_errors(connection, consumer, errors):
        assigned = count.open_partitions
        consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in assigned])
        while count.open_partitions:
            messages = consumer.consume(_FETCH_AT_ONCE, timeout=1.0)
            now = time.monotonic()
            if messages:
                last_message = now
            elif now - last_message > STALL_TIMEOUT:
                raise unreachable(connection, errors, f"sent nothing of {topic!r} for {STALL_TIMEOUT:.0f} s")
            for message in messages:
                count.observe(*partition_and_offset(message), is_record=not is_end(message))
            done = [partition for partition in assigned if partition not in count.open_partitions]
            if done:
                consumer.incremental_unassign([TopicPartition(topic, partition) for partition in done])
                assigned = count.open_partitions
            if now - last_report >= REPORT_INTERVAL:
                last_report = now
                report(f"counting the records of {topic}: {count.records:,} of at most {total:,}")
    return count.records


def fetch_records(
    connection: KafkaConnection, positions: Iterable[RecordPosition], isolation: str = ISOLATION
) -> dict[RecordPosition, Record]:
    """Read records by position; those that retention or compaction removed are left out.

    Raises `KafkaUnreachable` when the brokers stop answering, `TopicMissing` for a topic that was deleted.
    """
    records: dict[RecordPosition, Record] = {}
    settings = {"isolation.level": isolation, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    with open_consumer(connection, settings) as (consumer, errors), convert_kafka_errors(connection, consumer, errors):
        for (topic, partition), group in groupby(sorted(positions), key=lambda position: position[:2]):
            wanted = [position.offset for position in group]
            for record in _records_at(connection, consumer, errors, topic, partition, wanted):
                records[RecordPosition(topic, partition, record.offset)] = record
    return records


def read_to_end(
    connection: KafkaConnection, topic: str, partition: int, first: int, isolation: str = ISOLATION
) -> Iterator[Record]:
    """Yield a partition's records from the offset `first` to its end; from its first record if that offset is gone.

    Raises `KafkaUnreachable` when no message comes for `STALL_TIMEOUT` seconds.
    """
    settings = {"isolation.level": isolation, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    deadline = time.monotonic() + STALL_TIMEOUT
    with open_consumer(connection, settings) as (consumer, errors), convert_kafka_errors(connection, consumer, errors):
        consumer.assign([TopicPartition(topic, partition, first)])
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if is_end(message):
                return
            yield read_record(message)
            # Set after the yield, so that the time that the caller takes is not counted.
            deadline = time.monotonic() + STALL_TIMEOUT
        raise unreachable(connection, errors, f"sent nothing of {topic!r} for {STALL_TIMEOUT:.0f} s")


def _records_at(  # noqa: PLR0913, PLR0917 - the consumer, and what it reads
    connection: KafkaConnection,
    consumer: Consumer,
    errors: list[KafkaError],
    topic: str,
    partition: int,
    wanted: list[int],
) -> Iterator[Record]:
    """Yield a partition's records at the `wanted` offsets (sorted), without those that are gone.

    Between two wanted offsets it consumes the records of a short gap and seeks across a long one. Ends at the
    partition's end; raises `KafkaUnreachable` when no message comes for `STALL_TIMEOUT` seconds.
    """
    remaining = deque(wanted)
    position = -MAX_GAP_READ - 1  # the next offset to consume; so low that the first wanted offset needs a seek
    deadline = time.monotonic() + STALL_TIMEOUT
    while remaining:
        if remaining[0] - position > MAX_GAP_READ:
            position = remaining[0]
            consumer.assign([TopicPartition(topic, partition, position)])
        message = consumer.poll(1.0)
        if message is None:
            if time.monotonic() > deadline:
                raise unreachable(connection, errors, f"sent nothing of {topic!r} for {STALL_TIMEOUT:.0f} s")
            continue
        if is_end(message):
            return
        deadline = time.monotonic() + STALL_TIMEOUT
        _, offset = partition_and_offset(message)
        position = offset + 1
        while remaining and remaining[0] < offset:
            remaining.popleft()  # retention or compaction has removed it
        if remaining and remaining[0] == offset:
            remaining.popleft()
            yield read_record(message)


def is_end(message: Message) -> bool:
    """Return True for the end-of-partition event, False for a record; raises `KafkaUnreachable` for an error."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaUnreachable(f"Kafka reports for topic {message.topic()!r}: {error.str()}; check the brokers")


def partition_and_offset(message: Message) -> tuple[int, int]:
    """Return a consumed message's partition and offset."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def read_record(message: Message) -> Record:
    """Convert a consumed message, which has a topic, a partition and an offset, to a `Record`."""
    partition, offset = partition_and_offset(message)
    timestamp_type, timestamp = message.timestamp()
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        topic=message.topic() or "",
        partition=partition,
        offset=offset,
        timestamp_ms=None if timestamp_type == TIMESTAMP_NOT_AVAILABLE else timestamp,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in pairs),
    )


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
