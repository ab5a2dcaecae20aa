"""The rows that the tables should have, computed from the records in Kafka and the batches in the ledger.

Every record is decoded, filtered and mapped by the pipeline's own stages. Deduplication is repeated without the
pipeline's state: of each key the first record of its first batch is accepted, then the first record of the next batch
that is a window or more after the last accepted one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.checks.exact.canonical import row_column
from glassflow_dagster.definition.model.durations import milliseconds
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.stores.bookkeeping.dead_letter_table import (
    UNKNOWN_SCHEMA,
    UNKNOWN_SCHEMA_OF_KEY,
    RefusedEvent,
    UndecodedRecord,
)
from glassflow_dagster.stores.bookkeeping.ledger import BatchHistory, BatchRange
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stream.query import map_records, table_columns
from glassflow_dagster.stream.stages.columns import position
from glassflow_dagster.stream.stages.dead_letter_column import keep_raw_of_dead_letters
from glassflow_dagster.stream.stages.decode.registry import declare_registries, registries_of
from glassflow_dagster.stream.stages.dedup_in_scala import dedup_key
from glassflow_dagster.stream.stages.mapping_in_scala import TableColumns, read_values
from glassflow_dagster.stream.stages.source import read_ranges
from glassflow_dagster.stream.stages.source_index import ONLY_FIELDS

# How long a schema registry is waited for.
_REGISTRY_SECONDS = 60.0
# Of records and of rows, each with its batch: a topic that was deleted and created again has others at its positions.
# Of rows also the index in a record of many events (the item is -1 for other records), and the only table that refused
# the row ('' where the event could go to one only).
_RECORDS = "topic STRING, partition INT, offset LONG, batch_id LONG"
_ROWS = "topic STRING, partition INT, offset LONG, item INT, only_table STRING, batch_ms LONG"
_BATCH_SCHEMA = "batch_id LONG, batch_ms LONG, topic STRING, partition INT, first LONG, until LONG"


def expected_rows(  # noqa: PLR0913, PLR0917 - what makes a record a row
    spark: SparkSession,
    config: PipelineConfig,
    tables: Sequence[Table],
    history: BatchHistory,
    undecoded: Sequence[UndecodedRecord],
    keep: Sequence[Mapping[str, Column]],
) -> DataFrame:
    """Return the rows that the pipeline should have sent to its tables, those that ClickHouse rejected included.

    undecoded: see `read_undecoded`.
    keep: columns to compute, see `rows_of_batches`.
    Columns out: topic STRING, partition INT, offset LONG (of the record), batch_id LONG, batch_ms LONG, table_index
    INT, of an OTLP source item INT (the event's index in the record), and those of keep.
    """
    rows = rows_of_batches(spark, config, tables, history.ranges, history.checkpoint_id, undecoded, keep)
    dedup = config.dedup_of(config.source)
    if dedup is not None:
        rows = first_of_windows(rows, dedup)
    return single_rows(rows).drop("topic_rank", "exempt", "dedup_key")


def rows_of_batches(  # noqa: PLR0913, PLR0917 - what makes a record a row
    spark: SparkSession,
    config: PipelineConfig,
    tables: Sequence[Table],
    ranges: Sequence[BatchRange],
    checkpoint_id: str,
    undecoded: Sequence[UndecodedRecord],
    keep: Sequence[Mapping[str, Column]],
) -> DataFrame:
    """Return the rows before deduplication, without filtered records and dead letters. A range at least has records.

    The registries must be declared (`declare_for_reading`).

    tables: the sink's, in the order of `Sink.by_table`.
    undecoded: see `read_undecoded`.
    keep: of each table, the columns to compute by name, from its `row_column`, a STRUCT of its columns: NULL in those
        of types that are not compared (`read_values`), and for the rows of other tables.

    Columns out: topic STRING, topic_rank INT (the topic's place in the order of a batch), partition INT, offset LONG,
    item INT (of an OTLP source only), batch_id LONG, batch_ms LONG (the batch's time), exempt BOOLEAN (a replay of a
    record that passed deduplication before, and skips it), dedup_key BINARY, table_index INT (the row's table among
    `tables`), and those of keep. Where an event may go to all tables (`sink.match: all`), table_index and those of keep
    are in the column of_tables, an ARRAY<STRUCT>: see `single_rows`.
    """
    records = with_batches(read_ranges(spark, config.source, config.topics, whole_ranges(ranges)), ranges)
    if undecoded:
        without_row = spark.createDataFrame(undecoded, _RECORDS)
        records = records.join(without_row, without_row.columns, "left_anti")
    mapped = map_records(records, config, tables, checkpoint_id)
    # The number keeps Spark from pushing conditions below the stages: it would repeat in them whatever the stages
    # compute, each time that a stage refers to it, and the plan of a sink with some routes would not fit into memory.
    numbered = mapped.withColumn("number", F.monotonically_increasing_id())
    raw = keep_raw_of_dead_letters(numbered, "topic", "batch_id", "batch_ms", "number")
    if registries_of(config, config):
        raw = _require_known_schemas(raw)
    good = raw.where("dead_letter IS NULL AND drop_reason IS NULL AND number >= 0")
    # Of the only source: a join's rows are not compared.
    key = dedup_key(config.dedup_of(config.source), ONLY_FIELDS).alias("dedup_key")
    for index, columns in enumerate(table_columns(config, tables)):
        good = good.withColumn(row_column(index), _values_of(columns, index, config))
    names = ("topic", *position(good.columns), "batch_id", "batch_ms", "exempt")
    of_event = [*(F.col(name) for name in names), key]
    if config.sink.match == "first":
        return good.select(*of_event, _table_index(tables), *_by_table(keep))
    of_each = [
        F.when(F.col(row_column(index)).isNotNull(), F.struct(F.lit(index).alias("table_index"), *_named(of_table)))
        for index, of_table in enumerate(keep)
    ]
    return good.select(*of_event, F.array_compact(F.array(*of_each)).alias("of_tables"))


def _table_index(tables: Sequence[Table]) -> Column:
    """Return the index of the row's table, INT. Column in: row."""
    return (F.lit(0) if len(tables) == 1 else F.col("row.table")).alias("table_index")


def _named(columns: Mapping[str, Column]) -> list[Column]:
    """Return columns with their names."""
    return [column.alias(name) for name, column in columns.items()]


def single_rows(rows: DataFrame) -> DataFrame:
    """Return one row for each table that an event goes to, of `rows_of_batches`; the same where it has one only.

    Column in: of_tables ARRAY<STRUCT>. Columns out: the others, and those of the STRUCT.
    """
    if "of_tables" not in rows.columns:
        return rows
    return rows.select(*(name for name in rows.columns if name != "of_tables"), F.inline("of_tables"))


def _by_table(columns: Sequence[Mapping[str, Column]]) -> list[Column]:
    """Return named columns, each that of the row's table. columns: of each table, by name. Column in: row."""
    if len(columns) == 1:
        return _named(columns[0])
    return [
        F.coalesce(
            *(F.when(F.col("row.table") == index, of_table[name]) for index, of_table in enumerate(columns))
        ).alias(name)
        for name in columns[0]
    ]


def without_refused(rows: DataFrame, refused: Sequence[RefusedEvent], config: PipelineConfig) -> DataFrame:
    """Return the rows that the server has not rejected. Columns in: those of `expected_rows`; out: the same.

    refused: those of `read_refused_by_server`, which include replays, as these have positions of their own.
    """
    positions = rows.sparkSession.createDataFrame(refused, _ROWS)
    name_of = F.array(*(F.lit(sink.table_name) for sink in config.sink.by_table))
    # '' where the event could go to one table only.
    only_table = positions["only_table"]
    is_of_table = (only_table == "") | (only_table == name_of[rows["table_index"]])
    at_position = [rows[name] == positions[name] for name in positions.columns if name in rows.columns]
    return rows.join(positions, [*at_position, is_of_table], "left_anti")


def _values_of(columns: TableColumns, index: int, config: PipelineConfig) -> Column:
    """Return the values of a row of one of the tables, STRUCT; NULL for an event without one. Column in: row."""
    if not config.sink.routes:
        return read_values(F.col("row"), columns)
    if config.sink.match == "first":
        return F.when(F.col("row.table") == index, read_values(F.col("row.values"), columns))
    of_table = F.filter("row", lambda row: row["table"] == index)
    return F.when(F.size(of_table) > 0, read_values(of_table[0]["values"], columns))


def declare_for_reading(spark: SparkSession, config: PipelineConfig) -> None:
    """Declare the registries of a definition whose records are to be read again, each schema from it."""
    declare_registries(spark, config, registries_of(config, config), _REGISTRY_SECONDS)


def _require_known_schemas(rows: DataFrame) -> DataFrame:
    """Return rows whose reading fails where the registry does not know a schema that it knew when the batch was read.

    Columns in: dead_letter. Columns out: the same.
    """
    text = f"{UNKNOWN_SCHEMA} that records of the topic were written with; it had it before: restore it"
    reason = F.col("dead_letter.reason")
    is_unknown = F.startswith(reason, F.lit(UNKNOWN_SCHEMA)) | F.startswith(reason, F.lit(UNKNOWN_SCHEMA_OF_KEY))
    return rows.where(F.when(is_unknown, F.raise_error(F.lit(text))).otherwise(F.expr("true")))


def whole_ranges(ranges: Iterable[BatchRange]) -> dict[str, dict[int, tuple[int, int]]]:
    """Return the offsets that all batches together read: topic -> partition -> (from, until)."""
    whole: dict[str, dict[int, tuple[int, int]]] = {}
    for read in _not_empty(ranges):
        partitions = whole.setdefault(read.topic, {})
        first, until = partitions.get(read.partition, (read.first, read.until))
        partitions[read.partition] = (min(first, read.first), max(until, read.until))
    return whole


def with_batches(records: DataFrame, ranges: Iterable[BatchRange]) -> DataFrame:
    """Add the batch that each record was read in, by an equi-join on buckets of offsets.

    Columns in: topic, partition, offset. Columns added: batch_id LONG, batch_ms LONG (milliseconds since 1970),
    batch_time TIMESTAMP. Records of no batch are left out.
    """
    read = _not_empty(ranges)
    # Buckets are as wide as the average range: on average, a range then covers few buckets and a record is compared
    # with few ranges, however uneven batches are.
    width = max(1, sum(r.until - r.first for r in read) // max(1, len(read)))
    rows = [(r.batch_id, r.batch_time_ms, r.topic, r.partition, r.first, r.until) for r in read]
    batches = records.sparkSession.createDataFrame(rows, _BATCH_SCHEMA).withColumn(
        "bucket", F.explode(F.sequence(_bucket("first", width), _bucket("until - 1", width)))
    )
    candidates = records.withColumn("bucket", _bucket("offset", width)).join(
        F.broadcast(batches), ["topic", "partition", "bucket"]
    )
    return (
        candidates.where("offset >= first AND offset < until")
        .drop("bucket", "first", "until")
        .withColumn("batch_time", F.timestamp_millis("batch_ms"))
    )


def first_of_windows(rows: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Keep the first row of each key in each deduplication window of the processing clock, and every exempt row.

    Columns in: dedup_key BINARY (an exempt row's differs from every event's), exempt BOOLEAN, batch_ms, those of
    `position`, and any others. Columns out: the same.
    """
    group = ("dedup_key", "batch_ms", "exempt")
    other_columns = [name for name in rows.columns if name not in group]
    of_row = F.struct(*position(rows.columns))
    # Of each key and batch only the first row can be accepted. An exempt row is grouped alone, so that none is dropped.
    of_batch = rows.groupBy(*group, F.when(F.col("exempt"), of_row).alias("alone")).agg(
        F.min_by(F.struct(*other_columns), of_row).alias("first")
    )
    ordered = of_batch.repartition("dedup_key").sortWithinPartitions("dedup_key", "batch_ms")
    accepted = ordered.mapInArrow(FirstOfWindows(milliseconds(dedup.time_window)), ordered.schema)
    return accepted.select(*group, "first.*")


@dataclass(frozen=True)
class FirstOfWindows:
    """Keeps the first row of each key, the next one a window or more after the last kept row, and exempt rows.

    A function for `mapInArrow`; rows must be sorted by dedup_key and batch_ms.
    """

    window_ms: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Filter the batches of one Spark partition, which has all rows of its keys."""
        last_key, accepted_ms = None, 0  # key and batch time of the last accepted row
        for batch in batches:
            keep = []
            columns = (batch.column(name).to_pylist() for name in ("dedup_key", "batch_ms", "exempt"))
            for key, batch_ms, exempt in zip(*columns, strict=True):
                is_accepted = exempt or key != last_key or batch_ms - accepted_ms >= self.window_ms
                if is_accepted:
                    last_key, accepted_ms = key, batch_ms
                keep.append(is_accepted)
            yield batch.filter(pa.array(keep, pa.bool_()))


def _not_empty(ranges: Iterable[BatchRange]) -> list[BatchRange]:
    return [read for read in ranges if read.until > read.first]


def _bucket(offset: str, width: int) -> Column:
    """Return the number of the bucket of an offset (a SQL expression), BIGINT."""
    return F.floor(F.expr(offset) / F.lit(width)).cast("bigint")
