"""Which rows the records in Kafka call for, by the batches that the ledger says they were read in.

Every record is decoded, filtered and mapped by the pipeline's own stages. Deduplication is done anew, without the
pipeline's state: of each key the first record of the first batch, and then that of the next batch a window or more
after the last accepted one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.bookkeeping.ledger import BatchHistory, BatchRange
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.durations import milliseconds
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.streaming.query import map_records
from glassflow_dagster.streaming.stages.dead_letters import keep_raw_of_dead_letters
from glassflow_dagster.streaming.stages.dedup import dedup_key
from glassflow_dagster.streaming.stages.record_counter import SingleTopicCounter
from glassflow_dagster.streaming.stages.source import read_ranges
from glassflow_dagster.streaming.stages.source_index import FIELDS

_PLACE = SingleTopicCounter.position_columns
_BATCH = "batch_id LONG, batch_ms LONG, topic STRING, partition INT, first LONG, until LONG"


def expected_rows(
    spark: SparkSession, config: PipelineConfig, table: Table, history: BatchHistory, keep: Sequence[Column]
) -> DataFrame:
    """Give what is kept of each row that the table must have got.

    keep: named columns made of `row`, a STRUCT of the target's columns.
    Columns out: topic STRING, partition INT, offset LONG (of the record), batch_id LONG, and those of keep. Rows that
    the server refused are among them.
    """
    rows = rows_of_batches(spark, config, table, history.ranges, history.checkpoint_id, keep)
    dedup = config.dedup_of(config.source)
    if dedup is not None:
        rows = first_of_windows(rows, dedup)
    return rows.drop("topic_rank", "batch_ms", "exempt", "dedup_key")


def rows_of_batches(  # noqa: PLR0913, PLR0917 - what makes a record a row
    spark: SparkSession,
    config: PipelineConfig,
    table: Table,
    ranges: Sequence[BatchRange],
    checkpoint_id: str,
    keep: Sequence[Column],
) -> DataFrame:
    """Give what is kept of each row that comes to deduplication; ranges must not all be empty.

    Columns out: topic STRING, topic_rank INT, partition INT, offset LONG, batch_id LONG, batch_ms LONG, exempt BOOLEAN,
    dedup_key BINARY, and those of keep.
    """
    records = read_ranges(spark, config.source, config.topics, whole_ranges(ranges))
    mapped = map_records(with_batches(records, ranges), config, table, checkpoint_id)
    good = keep_raw_of_dead_letters(mapped, "topic", "batch_id", "batch_ms").where(
        "dead_letter IS NULL AND drop_reason IS NULL"
    )
    key = dedup_key(config.dedup_of(config.source), FIELDS[0]).alias("dedup_key")
    return good.select("topic", *_PLACE, "batch_id", "batch_ms", "exempt", key, *keep)


def whole_ranges(ranges: Iterable[BatchRange]) -> dict[str, dict[int, tuple[int, int]]]:
    """Give what all batches together read: topic -> partition -> [from, until)."""
    whole: dict[str, dict[int, tuple[int, int]]] = {}
    for read in _not_empty(ranges):
        partitions = whole.setdefault(read.topic, {})
        first, until = partitions.get(read.partition, (read.first, read.until))
        partitions[read.partition] = (min(first, read.first), max(until, read.until))
    return whole


def with_batches(records: DataFrame, ranges: Iterable[BatchRange]) -> DataFrame:
    """Add the batch that each record was read in.

    Columns in: topic, partition, offset. Columns added: batch_id LONG, batch_ms LONG (milliseconds since 1970),
    batch_time TIMESTAMP. A record of no batch is left out.
    """
    read = _not_empty(ranges)
    # Offsets are looked up by buckets as wide as the average range: the buckets that a range touches, and the ranges
    # that a record is held against, are then a few on average, however uneven batches are.
    width = max(1, sum(found.until - found.first for found in read) // max(1, len(read)))
    rows = [(f.batch_id, f.batch_time_ms, f.topic, f.partition, f.first, f.until) for f in read]
    batches = records.sparkSession.createDataFrame(rows, _BATCH).withColumn(
        "bucket", F.explode(F.sequence(_bucket("first", width), _bucket("until - 1", width)))
    )
    found = records.withColumn("bucket", _bucket("offset", width)).join(
        F.broadcast(batches), ["topic", "partition", "bucket"]
    )
    return (
        found.where("offset >= first AND offset < until")
        .drop("bucket", "first", "until")
        .withColumn("batch_time", F.timestamp_millis("batch_ms"))
    )


def first_of_windows(rows: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Keep the first row of each key in each window of the processing clock, and every exempt one.

    Columns in: dedup_key BINARY (an exempt row's is no event's), exempt BOOLEAN, batch_ms, topic_rank, partition,
    offset, and others. Columns out: the same.
    """
    group = ("dedup_key", "batch_ms", "exempt")
    others = [name for name in rows.columns if name not in group]
    place = F.struct(*_PLACE)
    of_batch = rows.groupBy(*group, F.when(F.col("exempt"), place).alias("alone")).agg(
        F.min_by(F.struct(*others), place).alias("first")
    )
    ordered = of_batch.repartition("dedup_key").sortWithinPartitions("dedup_key", "batch_ms")
    accepted = ordered.mapInArrow(FirstOfWindows(milliseconds(dedup.time_window)), ordered.schema)
    return accepted.select(*group, "first.*")


@dataclass(frozen=True)
class FirstOfWindows:
    """Keeps the first row of each key, the next one a window or more after the last that was kept, and exempt ones.

    Rows come in the order of dedup_key and batch_ms.
    """

    window_ms: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Go through one partition, which has all rows of its keys."""
        known, accepted = None, 0
        for batch in batches:
            keep = []
            columns = (batch.column(name).to_pylist() for name in ("dedup_key", "batch_ms", "exempt"))
            for key, batch_ms, exempt in zip(*columns, strict=True):
                first = exempt or key != known or batch_ms - accepted >= self.window_ms
                if first:
                    known, accepted = key, batch_ms
                keep.append(first)
            yield batch.filter(pa.array(keep, pa.bool_()))


def _not_empty(ranges: Iterable[BatchRange]) -> list[BatchRange]:
    return [found for found in ranges if found.until > found.first]


def _bucket(offset: str, width: int) -> Column:
    return F.floor(F.expr(offset) / F.lit(width)).cast("bigint")
