"""Deduplication: the first event of a key passes, those that follow within the window are counted.

This module is the Python bridge. What drops a duplicate, the state and its clocks, are in
scala/state/ProcessingTimeDedup.scala and scala/state/EventTimeDedup.scala.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.config.model.durations import microseconds, milliseconds
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.streaming.spark.session import java
from glassflow_dagster.streaming.stages.event_time import late_letter
from glassflow_dagster.streaming.stages.source_index import FIELDS

# What travels packed through the state.
_PAYLOAD = ("row", "size", "dead_letter", "drop_reason")
_SIDE_PAYLOAD = (
    "source",
    "join_key",
    "time",
    "max_event_time",
    "keep_late",
    "body",
    "size",
    "dead_letter",
    "drop_reason",
)


def drop_duplicates(events: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Drop events whose key was accepted less than the window ago.

    Dead letters, dropped and exempt records pass unchanged.

    Columns in: those of `keep_raw_of_dead_letters`.
    Columns out: topic_rank, partition, offset, row, size, dead_letter, drop_reason, and duplicates LONG: how many other
    records of the same key this batch held, or all of them where the key was known; row, dead_letter and drop_reason
    are NULL then.
    """
    keyed = events.withColumn("key", _key(dedup, FIELDS[0])).withColumn("source", F.lit(0))
    return _first_seen(keyed, [dedup], _PAYLOAD)


def drop_duplicates_of_sides(events: DataFrame, dedups: Sequence[DedupConfig | None]) -> DataFrame:
    """Drop duplicates of each source by its own key and window; a source without deduplication passes untouched.

    Columns in: those of `to_sides`. Columns out: the same without dedup_key and exempt, and duplicates as in
    `drop_duplicates`; of a known key source, body, dead_letter and drop_reason are NULL.
    """
    return _first_seen(events.withColumnRenamed("dedup_key", "key"), dedups, _SIDE_PAYLOAD)


def put_known(keys: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Put keys into the state that `drop_duplicates` goes on with; the stream that comes out has no rows.

    Columns in: key BINARY as `dedup_key` gives it, and until LONG, the millisecond since 1970 from which it is not
    known any more.
    """
    known = keys.select("key", F.lit(0).alias("source"), "until")
    spark = keys.sparkSession
    door = java(spark).glassflow.ProcessingTimeDedup
    return DataFrame(door.putKnown(known._jdf, [milliseconds(dedup.time_window)]), spark)


def dedup_key(dedup: DedupConfig | None, fields: str) -> Column:
    """Return the key of a source's event, BINARY.

    Columns in: the source's fields STRUCT, partition, and those of `is_active`.
    """
    return _no_key() if dedup is None else _key(dedup, fields)


def _first_seen(keyed: DataFrame, dedups: Sequence[DedupConfig | None], names: Sequence[str]) -> DataFrame:
    """Judge by the columns key and source; names: what travels packed, as it comes out beside place and duplicates."""
    payload = F.struct(*names)
    packed = F.call_function("glassflow_pack", payload).alias("payload")
    events = keyed.select("key", F.col("source"), *_place(), packed)
    spark = keyed.sparkSession
    windows = [milliseconds(dedup.time_window) if dedup else 0 for dedup in dedups]
    verdicts = java(spark).glassflow.ProcessingTimeDedup.apply(events._jdf, windows)
    unpacked = _unpacked(DataFrame(verdicts, spark), keyed.select(payload.alias("payload")))
    others = [F.col(f"payload.{name}") for name in names if name != "size"]
    return unpacked.select(*_passed(), *others)


def drop_duplicates_in_event_time(events: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Drop events whose key has an accepted one nearer in event time than the window, and those that come too late.

    Columns in: those of `keep_raw_of_dead_letters`, and timing as in `read_event_time`.
    Columns out: as in `drop_duplicates`. Of a late event dead_letter is set, or drop_reason is 'late', as the
    definition asks.
    """
    payload = F.struct(*_PAYLOAD, "timing.letter")
    keyed = events.select(
        _key(dedup, FIELDS[0]).alias("key"),
        *_place(),
        F.coalesce("timing.event_time", F.lit(0)).alias("time"),
        F.coalesce("timing.keep_late", F.lit(0).cast("boolean")).alias("keepLate"),
        F.call_function("glassflow_pack", payload).alias("payload"),
    )
    spark = events.sparkSession
    door = java(spark).glassflow.EventTimeDedup
    judged = door.apply(keyed._jdf, microseconds(dedup.time_window))
    verdicts = DataFrame(judged, spark)
    late = F.col("watermark").isNotNull()
    letter = late_letter(F.col("payload.letter"), F.col("watermark"))
    return _unpacked(verdicts, events.select(payload.alias("payload"))).select(
        *_passed(),
        F.when(~late, F.col("payload.row")).alias("row"),
        F.when(late, F.when(F.col("payload.letter").isNotNull(), letter))
        .otherwise(F.col("payload.dead_letter"))
        .alias("dead_letter"),
        F.when(late, F.when(F.col("payload.letter").isNull(), F.lit("late")))
        .otherwise(F.col("payload.drop_reason"))
        .alias("drop_reason"),
    )


def keep_duplicates(events: DataFrame) -> DataFrame:
    """Let every event pass. Columns in and out as in `drop_duplicates`; duplicates is 0."""
    return events.select("topic_rank", "partition", "offset", *_PAYLOAD, F.lit(0).cast("bigint").alias("duplicates"))


def _admitted() -> Column:
    return F.col("dead_letter").isNull() & F.col("drop_reason").isNull() & ~F.col("exempt")


def _key(dedup: DedupConfig, fields: str) -> Column:
    """Give the key as bytes; all that is not admitted has a key of its partition's, which no event has."""
    parts = [F.col(fields).getField(name) for name in dedup.key_fields]
    return F.when(_admitted(), F.call_function("glassflow_key", *parts)).otherwise(_no_key())


def _no_key() -> Column:
    return F.call_function("glassflow_no_key", F.col("partition"))


def _place() -> list[Column]:
    return [F.col("topic_rank").alias("topic"), F.col("partition"), F.col("offset")]


def _unpacked(verdicts: DataFrame, packed: DataFrame) -> DataFrame:
    """Unpack what travelled. packed: the same column before it was packed."""
    schema = packed.schema["payload"].dataType.json()
    return verdicts.withColumn("payload", F.call_function("glassflow_unpack", F.col("payload"), F.lit(schema)))


def _passed() -> list[Column]:
    size = F.coalesce("payload.size", F.lit(0)).alias("size")
    return [F.col("topic").alias("topic_rank"), F.col("partition"), F.col("offset"), size, F.col("duplicates")]
