"""How many records a micro-batch may take, by how large the records before them were.

A batch is sorted and shuffled on disk, and the records of a shard of its keys are in memory together, so what bounds it
must be bytes. Kafka counts offsets only, and tells no sizes: those seen last stand for those to come. Where they do
not, a batch is larger than it should be, which takes disk and time; what goes to Python and on to ClickHouse is cut by
bytes in any case.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from glassflow_dagster.config.model.source import Source
from glassflow_dagster.kafka.consumer import answering, open_consumer
from glassflow_dagster.kafka.records import is_end
from glassflow_dagster.streaming.spark.session import java

# Raw values of a batch. A shard of the keys is a 32nd of it on two cores, and the 200,000 records that a batch has at
# most are within it up to 1,300 bytes each.
BATCH_BYTES = 256 * 1024 * 1024

# What is looked at before the first batch: enough to tell kilobytes from megabytes.
_SAMPLE_RECORDS = 200
_SAMPLE_BYTES = 16 * 1024 * 1024
# Of a partition at once, compressed: it is unpacked before the first record of it is there.
_FETCHED_BYTES = 64 * 1024
# Spark takes about as long to start, and meanwhile nobody waits for this.
_SAMPLE_SECONDS = 4.0


@dataclass(frozen=True)
class BatchBound:
    """The bound of the micro-batches of one query, which is read by its source (scala/spark/BoundedKafka.scala)."""

    spark: SparkSession
    query: str

    def saw(self, records: int, size: int) -> None:
        """Let the next batch take as many records as fit into `BATCH_BYTES`, where so many had so many bytes."""
        if records:
            java(self.spark).glassflow.BatchBound.set(self.query, records_within(BATCH_BYTES, records, size))


def records_within(limit: int, records: int, size: int) -> int:
    """Give how many records fit into a limit of bytes, one at least, where so many had so many bytes."""
    return max(1, limit * records // max(1, size))


def sample_sizes(source: Source, starts: Mapping[str, Mapping[int, int]]) -> tuple[int, int]:
    """Read some of the next records of topics; gives how many were read, and the bytes of their values.

    starts: topic -> partition -> offset, or -2 for the first record and -1 for the one to come.
    Raises `KafkaUnreachable`.
    """
    settings = {
        "isolation.level": source.isolation, "auto.offset.reset": "earliest", "enable.partition.eof": True,
        "fetch.message.max.bytes": _FETCHED_BYTES, "queued.max.messages.kbytes": _SAMPLE_BYTES // 1024,
    }  # fmt: skip
    wanted = [TopicPartition(topic, p, offset) for topic, offsets in starts.items() for p, offset in offsets.items()]
    unread = {(place.topic, place.partition) for place in wanted}
    records = size = 0
    deadline = time.monotonic() + _SAMPLE_SECONDS
    connection = source.connection_params
    with open_consumer(connection, settings) as (consumer, errors), answering(connection, consumer, errors):
        consumer.assign(wanted)
        while unread and records < _SAMPLE_RECORDS and size < _SAMPLE_BYTES and time.monotonic() < deadline:
            for message in consumer.consume(_SAMPLE_RECORDS, timeout=0.1):
                if is_end(message):
                    unread.discard((message.topic(), message.partition()))
                else:
                    records += 1
                    size += len(message.value() or b"")
    return records, size
