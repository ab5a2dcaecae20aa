"""The join in Scala (scala/state/TemporalJoin.scala, Matching.scala): combines left events with right ones, by time.

This module calls the stateful processor. Spark's own stream-stream join cannot be used: it returns every pair, its
watermark moves with data only, and it does not count the events that it leaves out.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.durations import microseconds
from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.stream.spark.session import java
from glassflow_dagster.stream.stages.clock_source_in_scala import without_rows
from glassflow_dagster.stream.stages.columns import JOINED, MAX_EVENT_TIMES, NO_EVENT_TIME, TALLIES

# The side of a record that is no event of either source; that of an event is the index of its source.
_PASSES = -1
# The columns of such a record that pass the processor packed.
_PASSING = ("size", "dead_letter", "drop_reason")


def join_inputs(events: DataFrame, join: JoinConfig, clock_rows: DataFrame) -> DataFrame:
    """Join the events of two sources.

    Columns in: `position`, `JOIN_INPUT`, `DUPLICATES`. clock_rows: those of `ClockSource.read`.
    Columns out: `position`, `JOINED`, size, dead_letter, drop_reason, `TALLIES`, `MAX_EVENT_TIMES`.
    """
    is_event = F.col("dead_letter").isNull() & F.col("drop_reason").isNull() & F.col("body").isNotNull()
    # Other records, and events without a key, get a key of their partition that matches nothing.
    keyed = F.when(is_event & F.col("join_key").isNotNull(), F.col("join_key"))
    passing = F.struct(*_PASSING)
    sides = events.select(
        keyed.otherwise(F.call_function("glassflow_no_key", F.col("partition"))).alias("key"),
        F.when(is_event, F.col("source")).otherwise(_PASSES).alias("side"),
        F.col("topic_rank").alias("topic"),
        "partition",
        "offset",
        _or_least("time"),
        _or_least("max_event_time"),
        F.coalesce("keep_late", F.lit(0).cast("boolean")).alias("keepLate"),
        "duplicates",
        F.when(is_event, F.col("body")).otherwise(F.call_function("glassflow_pack", passing)).alias("payload"),
    )
    on_event_clock = join.clock == "event"
    clocked = clock_rows.withWatermark("clock", "0 seconds") if on_event_clock else clock_rows
    # The clock comes second in the union: the checkpoint module expects Kafka's offsets first in a batch's log.
    with_clock = sides.unionByName(without_rows(clocked, sides.schema, sides.columns))
    spark = events.sparkSession
    joined = java(spark).glassflow.TemporalJoin.apply(
        with_clock._jdf,
        microseconds(join.left_source.time_window),
        microseconds(join.right_source.time_window),
        join.match == "all",
        join.keeps_unmatched,
        on_event_clock,
    )
    schema = events.select(passing.alias("passing")).schema["passing"].dataType.json()
    unpacked = F.call_function("glassflow_unpack", F.col("passing"), F.lit(schema))
    return (
        DataFrame(joined, spark)
        .withColumn("passing", unpacked)
        .select(
            F.col("topic").alias("topic_rank"),
            "partition",
            "offset",
            *(F.col(_camel(name).removesuffix("Rank")).alias(name) for name in JOINED),
            _size().alias("size"),
            F.col("passing.dead_letter").alias("dead_letter"),
            F.col("passing.drop_reason").alias("drop_reason"),
            *(F.col(_camel(name)).alias(name) for name in (*TALLIES, *MAX_EVENT_TIMES)),
        )
    )


def _or_least(name: str) -> Column:
    """Return a time column under the name that the processor expects, with `NO_EVENT_TIME` for NULL."""
    return F.coalesce(F.col(name), F.lit(NO_EVENT_TIME).cast("bigint")).alias(_camel(name))


def _size() -> Column:
    """Return the size of a joined row: the bytes of both bodies; of a dead letter or dropped record, its own size.

    Blocks are cut by it. Columns in: left, and right, NULL without a match; passing STRUCT, which is set for a record
    that passes the join (a dead letter, or a dropped record), and NULL for a joined row and for a row that only has
    counts of events, such as dropped duplicates.
    """
    row = F.coalesce(F.octet_length("left"), F.lit(0)) + F.coalesce(F.octet_length("right"), F.lit(0))
    return F.when(F.col("left").isNotNull(), row).otherwise(F.coalesce(F.col("passing.size"), F.lit(0)))


def _camel(name: str) -> str:
    """Return a column's name as Scala has it: max_event_time becomes maxEventTime."""
    first_word, *other_words = name.split("_")
    return first_word + "".join(word.capitalize() for word in other_words)
