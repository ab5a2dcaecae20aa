"""Limits the records of a micro-batch, by the mean size of the records before them.

A batch is sorted and shuffled on disk, and the records of one shard of its keys are in memory together, so the limit
must be one of bytes. But Kafka's offsets count records and have no sizes: the next records are assumed to be as large
as the last ones. If they are larger, the batch only takes more disk and time; the blocks that go to Python and on to
ClickHouse are limited in bytes in any case. Where a record is many events (OTLP), the events are limited, too, as their
rows make the blocks of a batch, whose insert tokens the table must have room for.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from glassflow_dagster.config.model.source import Source
from glassflow_dagster.kafka.consumer import convert_kafka_errors, open_consumer
from glassflow_dagster.kafka.records import is_end
from glassflow_dagster.streaming.spark.session import java

# The raw values of a batch. On two cores a shard of the keys has a 32nd of it. With records of up to 1,300 bytes the
# limit of 200,000 records a batch applies first.
BATCH_BYTES = 256 * 1024 * 1024

# As JSON events a request of OpenTelemetry's is larger than it is in Kafka, since each event has the attributes of its
# resource. How much larger is known after a batch; until then so many times.
_GROWTH_OF_REQUESTS = 16
# Java's greatest long.
_UNLIMITED = 2**63 - 1

# The sample that is read before the first batch: enough to tell records of kilobytes from records of megabytes.
_SAMPLE_RECORDS = 200
_SAMPLE_BYTES = 16 * 1024 * 1024
# Fetched from a partition at once, compressed: all of it is decompressed before its first record is returned.
_FETCHED_BYTES = 64 * 1024
# The sample is read while Spark starts, which takes about as long.
_SAMPLE_SECONDS = 4.0


@dataclass
class BatchBound:
    """The limit of one query's micro-batches, in records; the query's source reads it (scala/spark/BoundedKafka.scala).

    query: the query's name. record_bytes: the mean size of the last records; 0 before the first. most_events: the
    events that a batch may have.
    """

    spark: SparkSession
    query: str
    record_bytes: int = 0
    most_events: int = _UNLIMITED
    # The records that fit into `BATCH_BYTES`, and have `most_events`.
    _most: int = field(default=_UNLIMITED, init=False)
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
            self._most = records_within(BATCH_BYTES, records, size)
            if events:
                self._most = min(self._most, records_within(self.most_events, records, events))
        self._limits.set(self.query, self._most)

    def begin_with(self, records: int) -> None:
        """Limit the next batch further, to so many records; `update` ends that."""
        self._limits.set(self.query, min(records, self._most))


def records_within(limit: int, records: int, size: int) -> int:
    """Return the number of records that fit into `limit`, at least one, if `records` took `size` of it."""
    return max(1, limit * records // max(1, size))


@dataclass(frozen=True)
class RecordSample:
    """The number of records in a sample, the bytes of their values, and whether no more records were waiting.

    The bytes of an export request of OpenTelemetry's are about those of its events.
    """

    records: int = 0
    bytes: int = 0
    is_complete: bool = False


def sample_sizes(source: Source, starts: Mapping[str, Mapping[int, int]]) -> RecordSample:
    """Read a sample of the next records of topics.

    starts: topic -> partition -> offset, where -2 means the first record and -1 the end of the partition.
    Reading stops at the ends of the partitions, or after `_SAMPLE_RECORDS`, `_SAMPLE_BYTES` or `_SAMPLE_SECONDS`.
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
    growth = _GROWTH_OF_REQUESTS if source.signal else 1
    deadline = time.monotonic() + _SAMPLE_SECONDS
    connection = source.connection_params
    with (
        open_consumer(connection, settings) as (consumer, errors),
        convert_kafka_errors(connection, consumer, errors),
    ):
        consumer.assign(partitions)
        while unread and records < _SAMPLE_RECORDS and size < _SAMPLE_BYTES and time.monotonic() < deadline:
            for message in consumer.consume(_SAMPLE_RECORDS, timeout=0.1):
                # An event of librdkafka's (enable.partition.eof), no record.
                if is_end(message):
                    unread.discard((message.topic(), message.partition()))
                else:
                    records += 1
                    size += len(message.value() or b"") * growth
    return RecordSample(records, size, is_complete=not unread)
