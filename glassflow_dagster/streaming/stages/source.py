"""Kafka's records as rows, and how many of them make a micro-batch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.clickhouse.inserts.insert import PARTITIONS_PER_BLOCK
from glassflow_dagster.clickhouse.target.token_window import TOKENS_KEPT
from glassflow_dagster.config.model.durations import milliseconds
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source
from glassflow_dagster.kafka.client import spark_options

# Records in one micro-batch at most: a replay after a crash then repeats seconds of work, not minutes. Of large records
# a batch takes fewer (batch_bound.py).
MAX_BATCH_RECORDS = 200_000

# Records that Kafka's client hands over at once, unless it is told otherwise, and how large they may be together: it
# takes them out of their compressed batches for it, and each partition's reader holds those that it has not passed on.
_POLLED_RECORDS = 500
_POLLED_BYTES = 16 * 1024 * 1024
# A broker that creates topics which are asked for would bring a deleted one back, empty.
_NOTHING_CREATED = {"kafka.allow.auto.create.topics": "false"}

# How long a broker holds a request for records that are not there yet. Spark's consumer asks for the next records
# before it is told to, and then for the partition's offsets on the same connection, where the answer waits for the
# first one: with Kafka's 500 ms every task that read to the end of its partition took half a second for 10 ms of work.
# No consumer asks while no task runs, so a short wait costs the brokers nothing.
FETCH_WAIT_MS = 10


@dataclass(frozen=True)
class BatchLimits:
    """When a micro-batch starts and how much it takes.

    A batch starts when `start_records` wait or `start_after_ms` have passed since the last one, and takes
    `max_records` at most. Kafka's client gives `polled_records` of them at once.
    """

    start_records: int
    start_after_ms: int
    max_records: int
    polled_records: int = _POLLED_RECORDS


@dataclass(frozen=True)
class Subscription:
    """Which topics a pipeline reads, in the order in which the records of one batch follow each other.

    starting: topic -> partition -> the first offset, or -2 for the topic's first record and -1 for the one to come. It
    counts for a new checkpoint, and is empty for others, where a topic or partition that is new begins at its first
    record.
    """

    topics: tuple[str, ...]
    starting: Mapping[str, Mapping[int, int]]


def batch_limits(config: PipelineConfig, record_bytes: int = 0, *, partitioned: bool) -> BatchLimits:
    """Derive the limits from `max_batch_size` and `max_delay_time`.

    The blocks of one batch stay below half the number of tokens that the table remembers, so that a replay of the
    batch finds all of them. A partitioned table counts a block once for each partition that it touches.
    record_bytes: the mean size of the records to come, 0 where it is not known.
    """
    blocks = TOKENS_KEPT // 2 // (PARTITIONS_PER_BLOCK if partitioned else 1)
    most = min(MAX_BATCH_RECORDS, blocks * config.sink.max_batch_size)
    return BatchLimits(
        start_records=min(config.sink.max_batch_size, most),
        start_after_ms=milliseconds(config.sink.max_delay_time),
        max_records=most,
        polled_records=max(1, min(_POLLED_RECORDS, _POLLED_BYTES // max(1, record_bytes))),
    )


def read_topics(  # noqa: PLR0913 - what a stream is made of
    spark: SparkSession,
    source: Source,
    subscription: Subscription,
    limits: BatchLimits,
    query: str,
    *,
    until_caught_up: bool,
) -> DataFrame:
    """Read topics as one stream. A micro-batch takes as many records as the `BatchBound` of the query's name allows.

    Columns out: topic STRING, topic_rank INT (its place in the subscription), partition INT, offset LONG,
    timestamp TIMESTAMP, key BINARY, value BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>, batch_time TIMESTAMP
    (Spark's logged time of the micro-batch).
    """
    options = {
        **spark_options(source.connection_params),
        **_NOTHING_CREATED,
        "kafka.isolation.level": source.isolation,
        "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
        "kafka.max.poll.records": str(limits.polled_records),
        "subscribe": ",".join(subscription.topics),
        "startingOffsets": json.dumps(subscription.starting) if subscription.starting else "earliest",
        "includeHeaders": "true",
        # Offsets that the broker no longer has are records lost: stop and say so.
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(limits.max_records),
        "glassflow.bound": query,
    }
    if not until_caught_up:
        # A query that ends when all is read must not wait for company.
        options["minOffsetsPerTrigger"] = str(limits.start_records)
        options["maxTriggerDelay"] = f"{limits.start_after_ms}ms"
    records = spark.readStream.format("glassflow.BoundedKafka").options(**options).load()
    return records.select(*_columns(subscription.topics), batch_time().alias("batch_time"))


def read_ranges(
    spark: SparkSession,
    source: Source,
    topics: Sequence[str],
    ranges: Mapping[str, Mapping[int, tuple[int, int]]],
) -> DataFrame:
    """Read what topics hold between two offsets once, as a table.

    ranges: topic -> partition -> [from, until). topics: in the order of their ranks.
    Columns out: those of `read_topics` without batch_time.
    """
    options = {
        **spark_options(source.connection_params),
        **_NOTHING_CREATED,
        "kafka.isolation.level": source.isolation,
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in ranges.items()}),
        "startingOffsets": _bound(ranges, 0),
        "endingOffsets": _bound(ranges, 1),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**options).load().select(*_columns(topics))


def _bound(ranges: Mapping[str, Mapping[int, tuple[int, int]]], end: int) -> str:
    return json.dumps({topic: {str(p): span[end] for p, span in found.items()} for topic, found in ranges.items()})


def _columns(topics: Sequence[str]) -> list[str | Column]:
    rank = _rank(topics).alias("topic_rank")
    return ["topic", rank, "partition", "offset", "timestamp", "key", "value", "headers"]


def batch_time() -> Column:
    """Give Spark's logged time of the micro-batch, a TIMESTAMP."""
    return F.call_function("glassflow_batch_time", F.current_timestamp())


def _rank(topics: Sequence[str]) -> Column:
    ranks = [F.when(F.col("topic") == topic, F.lit(rank)) for rank, topic in enumerate(topics)]
    return F.coalesce(*ranks, F.lit(len(topics)))
