"""Reads Kafka's records as rows, and limits how many of them a micro-batch takes."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.durations import milliseconds
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.stores.clickhouse.inserts.insert import PARTITIONS_PER_BLOCK
from glassflow_dagster.stores.clickhouse.tables.token_window import TOKENS_KEPT
from glassflow_dagster.stores.kafka.client import spark_options

# The most records of one micro-batch: a replay after a crash then repeats seconds of work, not minutes. A batch of
# large records has fewer (batch_bound.py).
MAX_BATCH_RECORDS = 200_000

# Kafka's default of the records that one poll returns, and the bytes that these may have in all: the client
# decompresses them, and the reader of each partition holds the records that it has not processed yet.
_POLLED_RECORDS = 500
_POLLED_BYTES = 16 * 1024 * 1024
# A partition is not divided among tasks below this: each of them opens a consumer of its own.
LEAST_TASK_RECORDS = 5_000
# Nor where partitions are as many as cores, and one has only somewhat more of a batch than the others.
_UNEVEN = 1.5
# The index of each bound in an offset range [first, until).
_FIRST, _UNTIL = 0, 1

# Spark's Kafka source, with other rows and another limit (scala/spark/BoundedKafka.scala).
_FORMAT = "glassflow.BoundedKafka"

# Brokers that create topics automatically would bring a deleted topic back, empty.
_NOTHING_CREATED = {"kafka.allow.auto.create.topics": "false"}

# How long a broker holds a fetch request at the end of a partition. Spark's consumer prefetches the next records, then
# asks for the partition's offsets on the same connection, where that answer waits for the fetch: with Kafka's default
# of 500 ms each task that read to the end of its partition took half a second for 10 ms of work. No consumer fetches
# while no task runs, so a short wait adds no load on the brokers.
FETCH_WAIT_MS = 10


@dataclass(frozen=True)
class BatchLimits:
    """When a micro-batch starts and how much it takes.

    A batch starts when `start_records` are unread or `start_after_ms` have passed since the last one, and takes
    `max_records` at most. One poll of Kafka's client returns up to `polled_records` of them. One task reads up to
    `task_records` of a topic's partition; None: all of a batch.
    """

    start_records: int
    start_after_ms: int
    max_records: int
    polled_records: int = _POLLED_RECORDS
    task_records: int | None = None


@dataclass(frozen=True)
class Subscription:
    """The topics that a pipeline reads, in the order of their records within a batch, and where to start.

    starting: topic -> partition -> the first offset, or -2 for the partition's first record and -1 for its end. It is
    used with a new checkpoint; else it is empty, and new topics and partitions are read from their first record.
    """

    topics: tuple[str, ...]
    starting: Mapping[str, Mapping[int, int]]


def batch_limits(config: PipelineConfig, record_bytes: int = 0, *, partitioned: bool) -> BatchLimits:
    """Derive the limits from `max_batch_size` and `max_delay_time`.

    The blocks of one batch stay below half of the table's deduplication window, so that the window still has the tokens
    of all of them at a replay. A partitioned table stores a token for each partition that a block touches. With several
    tables a block is an insert into each, and a view's target may be behind all of them.
    record_bytes: the mean size of the next records, 0 where it is not known.
    partitioned: whether the table is.
    """
    max_records = min(MAX_BATCH_RECORDS, max_rows(config, partitioned=partitioned))
    return BatchLimits(
        start_records=min(config.sink.max_batch_size, max_records),
        start_after_ms=milliseconds(config.sink.max_delay_time),
        max_records=max_records,
        polled_records=max(1, min(_POLLED_RECORDS, _POLLED_BYTES // max(1, record_bytes))),
    )


def task_records(config: PipelineConfig, max_records: int, cores: int) -> int | None:
    """Return the most records of a batch that one task reads of a topic's partition, so that all cores read.

    None where a task reads all of them: without a state, blocks are cut from what a task reads, and a repeated batch
    must cut the same ones on any number of cores. With a state they are cut behind the shuffle, from rows that are in
    order again. max_records: of a batch.
    """
    return max(LEAST_TASK_RECORDS, math.ceil(_UNEVEN * max_records / cores)) if config.has_state else None


def max_rows(config: PipelineConfig, *, partitioned: bool) -> int:
    """Return the rows of the most blocks that a batch may have; see `batch_limits`."""
    max_blocks = max(1, TOKENS_KEPT // 2 // max_tokens_per_block(config, partitioned=partitioned))
    return max_blocks * config.sink.max_batch_size


def max_tokens_per_block(config: PipelineConfig, *, partitioned: bool) -> int:
    """Return the most tokens that a table keeps of one block, of which each of the sink's tables may get a part."""
    return (PARTITIONS_PER_BLOCK if partitioned else 1) * len(config.sink.by_table)


def kafka_stream(  # noqa: PLR0913 - what a stream is made of
    spark: SparkSession,
    source: Source,
    subscription: Subscription,
    limits: BatchLimits,
    query: str,
    *,
    until_caught_up: bool,
) -> DataFrame:
    """Read topics as one stream. The `BatchBound` of the query's name may limit a micro-batch further.

    query: that name.
    until_caught_up: the query ends when all is read, and need not wait for full batches.
    Columns out: key, value, topic, partition, offset, timestamp and headers, as `read_records` describes them.
    """
    options = {
        **spark_options(source.connection_params),
        **_NOTHING_CREATED,
        "kafka.isolation.level": source.isolation,
        "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
        "kafka.max.poll.records": str(limits.polled_records),
        "subscribe": ",".join(subscription.topics),
        # Spark uses these for a new checkpoint only.
        "startingOffsets": json.dumps(subscription.starting) if subscription.starting else "earliest",
        "includeHeaders": "true",
        # Fail when the broker no longer has the offsets: their records are lost.
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(limits.max_records),
        **({"maxRecordsPerPartition": str(limits.task_records)} if limits.task_records else {}),
        "glassflow.bound": query,
    }
    if not until_caught_up:
        # A query that ends when all is read must not wait for a full batch.
        options["minOffsetsPerTrigger"] = str(limits.start_records)
        options["maxTriggerDelay"] = f"{limits.start_after_ms}ms"
    return spark.readStream.format(_FORMAT).options(**options).load()


def read_records(stream: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Return the records of a Kafka stream as the stages take them. topics: in the order of their ranks.

    Columns in: those of `kafka_stream`.
    Columns out: topic STRING, topic_rank INT (the topic's index in the subscription), partition INT, offset LONG,
    timestamp LONG (milliseconds since 1970; of any size, as Kafka takes what producers give), key BINARY, value BINARY,
    headers ARRAY<STRUCT<key STRING, value BINARY>>, batch_time TIMESTAMP (Spark's logged time of the micro-batch).
    """
    return stream.select(*_columns(topics), batch_time().alias("batch_time"))


def read_ranges(
    spark: SparkSession, source: Source, topics: Sequence[str], ranges: Mapping[str, Mapping[int, tuple[int, int]]]
) -> DataFrame:
    """Read offset ranges of topics as a table, not as a stream.

    ranges: topic -> partition -> [from, until).
    topics: in the order of their ranks.
    Columns out: those of `read_records` without batch_time.
    """
    options = {
        **spark_options(source.connection_params),
        **_NOTHING_CREATED,
        "kafka.isolation.level": source.isolation,
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in ranges.items()}),
        "startingOffsets": _offsets_json(ranges, _FIRST),
        "endingOffsets": _offsets_json(ranges, _UNTIL),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return spark.read.format(_FORMAT).options(**options).load().select(*_columns(topics))


def _offsets_json(ranges: Mapping[str, Mapping[int, tuple[int, int]]], bound: int) -> str:
    """Return one bound (`_FIRST` or `_UNTIL`) of the offset ranges, as JSON for Spark's Kafka source."""
    return json.dumps({topic: {str(p): span[bound] for p, span in spans.items()} for topic, spans in ranges.items()})


def _columns(topics: Sequence[str]) -> list[str | Column]:
    """Return the columns of a record as the source has them, and its topic_rank."""
    rank = _rank(topics).alias("topic_rank")
    return ["topic", rank, "partition", "offset", "timestamp", "key", "value", "headers"]


def batch_time() -> Column:
    """Return the time of the micro-batch that Spark logs with it, TIMESTAMP: a replay has the same one."""
    return F.call_function("glassflow_batch_time", F.current_timestamp())


def _rank(topics: Sequence[str]) -> Column:
    """Return the index of the record's topic among `topics`, INT: its records' place in the order within a batch."""
    # The last one is for no record, as only these topics are read; with it the column cannot be NULL.
    ranks = [F.when(F.col("topic") == topic, F.lit(rank)) for rank, topic in enumerate(topics)]
    return F.coalesce(*ranks, F.lit(len(topics)))
