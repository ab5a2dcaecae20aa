"""Deduplication: the first event of a key passes, those that follow within the window are counted.

The state and its clocks are in state/FirstSeen.scala and state/FirstInEventTime.scala; here is their Python door.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.durations import microseconds, milliseconds
from glassflow_dagster.config.model import DedupConfig
from glassflow_dagster.streaming.event_time import late_letter
from glassflow_dagster.streaming.session import java
from glassflow_dagster.streaming.sides import FIELDS

# What travels packed through the state.
_PAYLOAD = ("row", "size", "refused", "dropped")
_SIDE_PAYLOAD = ("source", "join_key", "time", "lead", "keep_late", "body", "size", "refused", "dropped")


def drop_duplicates(events: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Drop events whose key was accepted less than the window ago; refused, dropped and exempt records pass untouched.

    Columns in: those of `keep_raw_of_refused`.
    Columns out: topic_rank, partition, offset, row, size, refused, dropped, and duplicates LONG: how many other records
    of the same key this batch held, or all of them where the key was known; row, refused and dropped are NULL then.
    """
    keyed = events.withColumn("key", _key(dedup, FIELDS[0])).withColumn("source", F.lit(0))
    return _first_seen(keyed, [dedup], _PAYLOAD)


def drop_duplicates_of_sides(events: DataFrame, dedups: Sequence[DedupConfig | None]) -> DataFrame:
    """Drop duplicates of each source by its own key and window; a source without deduplication passes untouched.

    Columns in: those of `to_sides`. Columns out: the same without dedup_key and exempt, and duplicates as in
    `drop_duplicates`; of a known key source, body, refused and dropped are NULL.
    """
    return _first_seen(events.withColumnRenamed("dedup_key", "key"), dedups, _SIDE_PAYLOAD)


def put_known(keys: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Put keys into the state that `drop_duplicates` goes on with; the stream that comes out has no rows.

    Columns in: key BINARY as `dedup_key` gives it, and until LONG, the millisecond since 1970 from which it is not
    known any more.
    """
    known = keys.select("key", F.lit(0).alias("source"), "until")
    spark = keys.sparkSession
    door = java(spark).glassflow.FirstSeen
    return DataFrame(door.putKnown(known._jdf, [milliseconds(dedup.time_window)]), spark)  # noqa: SLF001


def dedup_key(dedup: DedupConfig | None, fields: str) -> Column:
    """Give the key of a source's event as bytes. Columns in: the source's fields STRUCT, partition, and `goes_on`'s."""
    return _no_key() if dedup is None else _key(dedup, fields)


def _first_seen(keyed: DataFrame, dedups: Sequence[DedupConfig | None], names: Sequence[str]) -> DataFrame:
    """Judge by the columns key and source; names: what travels packed, as it comes out beside place and duplicates."""
    payload = F.struct(*names)
    packed = F.call_function("glassflow_pack", payload).alias("payload")
    events = keyed.select("key", F.col("source"), *_place(), packed)
    spark = keyed.sparkSession
    windows = [milliseconds(dedup.time_window) if dedup else 0 for dedup in dedups]
    verdicts = java(spark).glassflow.FirstSeen.apply(events._jdf, windows)  # noqa: SLF001
    unpacked = _unpacked(DataFrame(verdicts, spark), keyed.select(payload.alias("payload")))
    others = [F.col(f"payload.{name}") for name in names if name != "size"]
    return unpacked.select(*_passed(), *others)


def drop_duplicates_in_event_time(events: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Drop events whose key has an accepted one nearer in event time than the window, and those that come too late.

    Columns in: those of `keep_raw_of_refused`, and timing as in `read_event_time`.
    Columns out: as in `drop_duplicates`. Of a late event refused is set, or dropped is 'late', as the definition asks.
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
    door = java(spark).glassflow.FirstInEventTime
    judged = door.apply(keyed._jdf, microseconds(dedup.time_window))  # noqa: SLF001
    verdicts = DataFrame(judged, spark)
    late = F.col("watermark").isNotNull()
    letter = late_letter(F.col("payload.letter"), F.col("watermark"))
    return _unpacked(verdicts, events.select(payload.alias("payload"))).select(
        *_passed(),
        F.when(~late, F.col("payload.row")).alias("row"),
        F.when(late, F.when(F.col("payload.letter").isNotNull(), letter))
        .otherwise(F.col("payload.refused"))
        .alias("refused"),
        F.when(late, F.when(F.col("payload.letter").isNull(), F.lit("late")))
        .otherwise(F.col("payload.dropped"))
        .alias("dropped"),
    )


def keep_duplicates(events: DataFrame) -> DataFrame:
    """Let every event pass. Columns in and out as in `drop_duplicates`; duplicates is 0."""
    return events.select("topic_rank", "partition", "offset", *_PAYLOAD, F.lit(0).cast("bigint").alias("duplicates"))


def _admitted() -> Column:
    return F.col("refused").isNull() & F.col("dropped").isNull() & ~F.col("exempt")


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
