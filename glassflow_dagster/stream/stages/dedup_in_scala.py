"""Deduplication in Scala (scala/state/ProcessingTimeDedup.scala, EventTimeDedup.scala): duplicates are dropped there.

The first event of a key passes, later ones within the window are dropped and counted. This module calls the stateful
processors, on the processing and on the event clock.
"""

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.durations import microseconds, milliseconds
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.stream.spark.session import java
from glassflow_dagster.stream.stages.columns import EVENT, ITEM, JOIN_INPUT, MARK, PAYLOAD, position
from glassflow_dagster.stream.stages.event_time import late_dead_letter
from glassflow_dagster.stream.stages.source_index import ONLY_FIELDS

# The source index of a pipeline without a join.
_ONLY_SOURCE = 0

# A record has less than 2^20 events, and no partition of Kafka's has 2^43 records.
_ITEM_BITS = 20


def drop_duplicates(events: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Drop events whose key was accepted less than the window ago, on the processing clock.

    Dead letters, dropped and exempt records pass unchanged.

    Columns in: those of `keep_raw_of_dead_letters`.
    Columns out: `position`, `PAYLOAD`, `DUPLICATES`, and `EVENT` where it comes in. A key has one row per batch: its
    first event, and in duplicates the number of its other events in the batch. If the key was accepted in an earlier
    batch, duplicates counts all of them; row, timestamp, dead_letter and drop_reason are NULL.
    """
    keyed = events.withColumn("key", _key(dedup, ONLY_FIELDS)).withColumn("source", F.lit(_ONLY_SOURCE))
    return _drop_in_processing_time(keyed, [dedup], _payload(events.columns))


def drop_duplicates_of_join_inputs(events: DataFrame, dedups: Sequence[DedupConfig | None]) -> DataFrame:
    """Drop duplicates of each source of a join by its own key and window; without dedup a source passes unchanged.

    dedups: of the left and the right source; None for one without deduplication.
    Columns in: dedup_key BINARY, exempt BOOLEAN, `position`, `JOIN_INPUT`. Columns out: the last two, and
    `DUPLICATES`. A key has one row per batch: its first event, and in duplicates the number of its other events. A key
    that was accepted in an earlier batch has a row, too, so that its duplicates are counted; source, body, dead_letter
    and drop_reason are NULL then.
    """
    return _drop_in_processing_time(events.withColumnRenamed("dedup_key", "key"), dedups, JOIN_INPUT)


def put_known(keys: DataFrame, dedups: Sequence[DedupConfig | None]) -> DataFrame:
    """Write keys into a state that `drop_duplicates` can continue with, to rebuild it; the stream out has no rows.

    dedups: by source index; None for a source without deduplication.
    Columns in: key BINARY as in `dedup_key`, source INT, and until LONG, the end of the key's window, milliseconds
    since 1970. Columns out: those of the processor.
    """
    spark = keys.sparkSession
    processor = java(spark).glassflow.ProcessingTimeDedup
    return DataFrame(processor.putKnown(keys.select("key", "source", "until")._jdf, _windows(dedups)), spark)


def dedup_key(dedup: DedupConfig | None, fields: str) -> Column:
    """Return the dedup key of a source's event, BINARY; without dedup, the key of records that always pass.

    fields: the column of the source's decoded fields. Columns in: that column, dead_letter, drop_reason, exempt,
    partition.
    """
    return _no_key() if dedup is None else _key(dedup, fields)


def _drop_in_processing_time(
    keyed: DataFrame, dedups: Sequence[DedupConfig | None], columns: Sequence[str]
) -> DataFrame:
    """Run the stateful processor of the processing clock, which has one row per key and batch as its result.

    dedups: by source index.
    columns: those that pass the processor packed into one BINARY column.
    Columns in: key BINARY, source INT, topic_rank, partition, offset and `columns`, and item, if it is there. Columns
    out: topic_rank, partition, offset, item, size, duplicates and `columns`, NULL for a key that was accepted before.
    """
    payload = F.struct(*columns)
    packed = F.call_function("glassflow_pack", payload).alias("payload")
    events = keyed.select("key", F.col("source"), *_position(keyed.columns), packed)
    spark = keyed.sparkSession
    results = java(spark).glassflow.ProcessingTimeDedup.apply(events._jdf, _windows(dedups))
    rows = _unpack(DataFrame(results, spark), unpacked=keyed.select(payload.alias("payload")))
    # Without size, which is among the common columns.
    payload_columns = [F.col(f"payload.{name}") for name in columns if name != "size"]
    return rows.select(*_common_columns(keyed.columns), *payload_columns)


def _windows(dedups: Sequence[DedupConfig | None]) -> list[int]:
    """Return the windows in milliseconds, 0 for a source without deduplication, whose records always pass."""
    return [milliseconds(dedup.time_window) if dedup else 0 for dedup in dedups]


def drop_duplicates_in_event_time(events: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Drop events that are nearer in event time than the window to an accepted event of their key, and late events.

    An event behind the watermark is late, unless its timing.keep_late is true: then it passes like any other.

    Columns in: those of `keep_raw_of_dead_letters`, and timing as in `read_event_time`.
    Columns out: those of `drop_duplicates`. A late event has either its dead letter (timing.if_late) in dead_letter,
    or 'late' in drop_reason where timing.if_late is NULL; its row is NULL.
    """
    names = _payload(events.columns)
    payload = F.struct(*names, "timing.if_late")
    # Records without timing (dead letters, dropped records) pass by their key: their time and keepLate are not read.
    keyed = events.select(
        _key(dedup, ONLY_FIELDS).alias("key"),
        *_position(events.columns),
        F.coalesce("timing.event_time", F.lit(0)).alias("time"),
        F.coalesce("timing.keep_late", F.lit(0).cast("boolean")).alias("keepLate"),
        F.call_function("glassflow_pack", payload).alias("payload"),
    )
    spark = events.sparkSession
    processor = java(spark).glassflow.EventTimeDedup
    results = DataFrame(processor.apply(keyed._jdf, microseconds(dedup.time_window)), spark)
    # The processor sets the watermark for late events only.
    late = F.col("watermark").isNotNull()
    is_dead_letter = F.col("payload.if_late").isNotNull()
    dead_letter = late_dead_letter(F.col("payload.if_late"), F.col("watermark"))
    return _unpack(results, unpacked=events.select(payload.alias("payload"))).select(
        *_common_columns(events.columns),
        *(F.col(f"payload.{name}") for name in names if name in ("timestamp", EVENT)),
        F.when(~late, F.col("payload.row")).alias("row"),
        F.when(late, F.when(is_dead_letter, dead_letter)).otherwise(F.col("payload.dead_letter")).alias("dead_letter"),
        F.when(late, F.when(~is_dead_letter, F.lit("late")))
        .otherwise(F.col("payload.drop_reason"))
        .alias("drop_reason"),
    )


def keep_duplicates(events: DataFrame) -> DataFrame:
    """Pass every event, for a source without deduplication. Columns as in `drop_duplicates`; duplicates is 0."""
    no_duplicates = F.lit(0).cast("bigint").alias("duplicates")
    return events.select(*position(events.columns), *_payload(events.columns), no_duplicates)


def _payload(columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that pass a processor packed, of those that come in."""
    return (*PAYLOAD, *((EVENT,) if EVENT in columns else ()))


def _is_deduplicated() -> Column:
    """Return a condition, BOOLEAN: the record takes part in deduplication; dead letters, dropped and exempt do not."""
    return F.col("dead_letter").isNull() & F.col("drop_reason").isNull() & ~F.col("exempt")


def _key(dedup: DedupConfig, fields: str) -> Column:
    """Return the dedup key, BINARY: the packed key fields of an event that is deduplicated.

    Dead letters, dropped and exempt records have `_no_key`, with which they always pass.
    fields: the column of the decoded fields. Columns in: that column, dead_letter, drop_reason, exempt, partition.
    """
    parts = [F.col(fields).getField(name) for name in dedup.key_fields]
    return F.when(_is_deduplicated(), F.call_function("glassflow_key", *parts)).otherwise(_no_key())


def _no_key() -> Column:
    """Return the key of the records that always pass, BINARY, one per Kafka partition; no event's key is equal to it.

    Column in: partition.
    """
    return F.call_function("glassflow_no_key", F.col("partition"))


def _position(columns: Collection[str]) -> list[Column]:
    """Return the columns of an event's position, as the stateful processors name them. columns: that come in."""
    return [F.col("topic_rank").alias("topic"), F.col("partition"), _packed_offset(columns).alias("offset")]


def _packed_offset(columns: Collection[str]) -> Column:
    """Return offset and item as one LONG that orders as the pair does; without items the offset.

    The processors order the events of a partition by one number. columns: that come in.
    """
    if ITEM not in columns:
        return F.col("offset")
    return F.shiftleft("offset", _ITEM_BITS).bitwiseOR(F.col(ITEM).cast("bigint") - F.lit(MARK))


def _unpacked(offset: Column) -> list[Column]:
    """Return the columns offset and item of a `_packed_offset`."""
    item = offset.bitwiseAND(F.lit(2**_ITEM_BITS - 1)) + F.lit(MARK)
    return [F.shiftright(offset, _ITEM_BITS).alias("offset"), item.cast("int").alias(ITEM)]


def _unpack(results: DataFrame, unpacked: DataFrame) -> DataFrame:
    """Unpack the column payload of a processor's results, BINARY, to a STRUCT.

    unpacked: a DataFrame whose column payload has the type to unpack to; its rows are not read.
    """
    schema = unpacked.schema["payload"].dataType.json()
    return results.withColumn("payload", F.call_function("glassflow_unpack", F.col("payload"), F.lit(schema)))


def _common_columns(columns: Collection[str]) -> list[Column]:
    """Return the columns that both processors' results have: position, size and duplicates. columns: that came in."""
    # For a key that was accepted before, the processor returns no payload.
    size = F.coalesce("payload.size", F.lit(0)).alias("size")
    offset = _unpacked(F.col("offset")) if ITEM in columns else [F.col("offset")]
    return [F.col("topic").alias("topic_rank"), F.col("partition"), *offset, size, F.col("duplicates")]
