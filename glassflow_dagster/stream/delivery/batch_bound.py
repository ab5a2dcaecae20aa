"""Limits the records of a micro-batch, by the mean size of the records before them.

A batch is sorted and shuffled on disk, and the records of one shard of its keys are in memory together, so the limit
must be one of bytes. But Kafka's offsets count records and have no sizes: the next records are assumed to be as large
as the last ones. If they are larger, the batch only takes more disk and time; the blocks that go to Python and on to
ClickHouse are limited in bytes in any case. Where a record is many events (OTLP), the events are limited, too: they are
what a repeated batch repeats, and their rows make the blocks whose insert tokens a table keeps. As they may be more
than the mean says, `token_room.py` sees to it that the table keeps all of these tokens.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.stores.kafka.consumer import convert_kafka_errors, open_consumer
from glassflow_dagster.stores.kafka.records import is_end
from glassflow_dagster.stream.spark.session import java

# The raw values of a batch. On two cores a shard of the keys has a 32nd of it. With records of up to 1,300 bytes the
# limit of 200,000 records a batch applies first.
BATCH_BYTES = 256 * 1024 * 1024

# Java's greatest long.
_UNLIMITED = 2**63 - 1

# The sample that is read before the first batch: enough to tell records of kilobytes from records of megabytes.
_SAMPLE_RECORDS = 200
_SAMPLE_BYTES = 16 * 1024 * 1024
# Requests of OpenTelemetry's are split to count their events, which takes time, and become several times as large.
_SAMPLE_BYTES_OF_REQUESTS = 1024 * 1024
# Fetched from a partition at once, compressed: all of it is decompressed before its first record is returned.
_FETCHED_BYTES = 64 * 1024
# The sample is read while Spark starts, which takes about as long.
_SAMPLE_SECONDS = 4.0


@dataclass
class BatchBound:
    """The limit of one query's micro-batches, in records; the query's source reads it (scala/spark/BoundedKafka.scala).

    query: the query's name.
    record_bytes: the mean size of the last records; 0 before the first.
    """

    spark: SparkSession
    query: str
    record_bytes: int = 0
    # The records that fit into `BATCH_BYTES`, and those that have the most events that a batch may have.
    _fitting: int = field(default=_UNLIMITED, init=False)
    _fitting_events: int = field(default=_UNLIMITED, init=False)
    _most_events: int = field(default=_UNLIMITED, init=False)
    # The number of the last records, and their events.
    _last: tuple[int, int] = field(default=(0, 0), init=False)
    # Looked up once: each lookup has the JVM search its class path for the parts of the name.
    _limits: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Look up the JVM's limits."""
        self._limits = java(self.spark).glassflow.BatchBound

    def update(self, records: int, size: int, events: int = 0) -> None:
        """Limit the next batch to the records that fit into `BATCH_BYTES`, by the mean size of the last ones.

        records, size, events: the number of the last records, their bytes, and their events where these are known;
        without a record this limit stays.
        """
        if records:
            self.record_bytes = size // records
            self._fitting = records_within(BATCH_BYTES, records, size)
            self._last = (records, events)
        self._limit()

    def update_by(self, sample: "RecordSample", source: Source) -> None:
        """Limit the next batch by a sample of its records; as `update`. source: whose records they are."""
        if source.signal:
            self.update(sample.records, *_sizes_of_events(self.spark, source, sample.requests))
        else:
            self.update(sample.records, sample.size)

    def limit_events(self, most: int) -> None:
        """Limit the events of each batch from now on, by the mean number of the last records' events."""
        self._most_events = most
        self._limit()

    def records_of(self, events: int) -> int:
        """Return the number of records that have so many events, by the mean of the last ones; at least one."""
        records, of_them = self._last
        return records_within(events, records, of_them) if of_them else events

    def _limit(self) -> None:
        self._fitting_events = self.records_of(self._most_events)
        self._limits.set(self.query, self._most)

    @property
    def _most(self) -> int:
        return min(self._fitting, self._fitting_events)

    def begin_with(self, records: int) -> None:
        """Limit the next batch further, to so many records; `update` ends that."""
        self._limits.set(self.query, min(records, self._most))


def records_within(limit: int, records: int, size: int) -> int:
    """Return the number of records that fit into `limit`, at least one, if `records` took `size` of it."""
    return max(1, limit * records // max(1, size))


@dataclass(frozen=True)
class RecordSample:
    """The number of records in a sample, the bytes of their values, and whether no more records were waiting.

    requests: the values themselves where they are export requests of OpenTelemetry's, whose events are to be counted.
    """

    records: int = 0
    size: int = 0
    is_complete: bool = False
    requests: tuple[bytes, ...] = ()


def _sizes_of_events(spark: SparkSession, source: Source, requests: Iterable[bytes]) -> tuple[int, int]:
    """Return the bytes and the number of the events of export requests."""
    splitter = java(spark).glassflow.OtlpSplitter(json.dumps({"signal": source.signal, "format": source.format}))
    sizes = [tuple(splitter.sizeOfEvents(request)) for request in requests]
    return sum(size for size, _ in sizes), sum(events for _, events in sizes)


def sample_sizes(source: Source, starts: Mapping[str, Mapping[int, int]]) -> RecordSample:
    """Read a sample of the next records of topics.

    starts: topic -> partition -> offset, where -2 means the first record and -1 the end of the partition.
    Reading stops at the ends of the partitions, or after `_SAMPLE_RECORDS`, `_SAMPLE_BYTES` (of requests
    `_SAMPLE_BYTES_OF_REQUESTS`) or `_SAMPLE_SECONDS`.
    Raises `KafkaUnreachable`.
    """
    settings = {
        "isolation.level": source.isolation, "auto.offset.reset": "earliest", "enable.partition.eof": True,
        "fetch.message.max.bytes": _FETCHED_BYTES, "queued.max.messages.kbytes": _SAMPLE_BYTES // 1024,
    }  # fmt: skip
    partitions = [
        TopicPartition(topic, p, offset) for topic, offsets in starts.items() for p, offset in offsets.items()
    ]
    unread = {(partition.topic, partition.partition) for partition in partitions}
    records = size = 0
    requests: list[bytes] = []
    most_bytes = _SAMPLE_BYTES_OF_REQUESTS if source.signal else _SAMPLE_BYTES
    deadline = time.monotonic() + _SAMPLE_SECONDS
    connection = source.connection_params
    with open_consumer(connection, settings) as (consumer, errors), convert_kafka_errors(connection, consumer, errors):
        consumer.assign(partitions)
        while unread and records < _SAMPLE_RECORDS and size < most_bytes and time.monotonic() < deadline:
            for message in consumer.consume(_SAMPLE_RECORDS - records, timeout=0.1):
                # An event of librdkafka's (enable.partition.eof), no record.
                if is_end(message):
                    unread.discard((message.topic(), message.partition()))
                else:
                    value = message.value() or b""
                    records += 1
                    size += len(value)
                    if source.signal:
                        requests.append(value)
    return RecordSample(records, size, not unread, tuple(requests))
