"""Deduplication: the first event of a key passes, those that follow within the window are counted.

The state and its clock are in state/FirstSeen.scala; this module is its Python door.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.durations import milliseconds
from glassflow_dagster.config.model import DedupConfig
from glassflow_dagster.streaming.session import java

# What travels packed through the state.
_PAYLOAD = ("row", "size", "refused", "dropped")


def drop_duplicates(events: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Drop events whose key was accepted less than the window ago; refused and dropped records pass untouched.

    Columns in: those of `keep_raw_of_refused`.
    Columns out: topic_rank, partition, offset, row, size, refused, dropped, and duplicates LONG: how many other records
    of the same key this batch held, or all of them where the key was known; row, refused and dropped are NULL then.
    """
    parts = [F.col("fields").getField(name) for name in dedup.key_fields]
    admitted = F.col("refused").isNull() & F.col("dropped").isNull()
    payload = events.select(*_PAYLOAD).schema
    keyed = events.select(
        F.when(admitted, F.call_function("glassflow_key", *parts))
        .otherwise(F.call_function("glassflow_no_key", F.col("partition")))
        .alias("key"),
        admitted.alias("admitted"),
        F.col("topic_rank").alias("topic"),
        "partition",
        "offset",
        F.call_function("glassflow_pack", F.struct(*_PAYLOAD)).alias("payload"),
    )
    spark = events.sparkSession
    verdicts = java(spark).glassflow.FirstSeen.apply(keyed._jdf, milliseconds(dedup.time_window))  # noqa: SLF001
    unpacked = F.call_function("glassflow_unpack", F.col("payload"), F.lit(payload.json()))
    return (
        DataFrame(verdicts, spark)
        .withColumn("payload", unpacked)
        .select(
            F.col("topic").alias("topic_rank"),
            "partition",
            "offset",
            "payload.row",
            F.coalesce("payload.size", F.lit(0)).alias("size"),
            "payload.refused",
            "payload.dropped",
            "duplicates",
        )
    )


def keep_duplicates(events: DataFrame) -> DataFrame:
    """Let every event pass. Columns in and out as in `drop_duplicates`; duplicates is 0."""
    return events.select("topic_rank", "partition", "offset", *_PAYLOAD, F.lit(0).cast("bigint").alias("duplicates"))
