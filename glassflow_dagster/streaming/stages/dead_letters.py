"""Refused records: what is kept of them on their way to the dead letter table.

A good record's raw bytes are discarded before deduplication and the sort; those of a dead letter travel on beside it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.streaming.stages.scope import Scope


def keep_raw_of_dead_letters(events: DataFrame, *more: str) -> DataFrame:
    """Trim every record to what the rest of its way needs.

    Columns in: those of `read_topics`, fields, error, drop_reason, exempt, row, and `more`, which pass as they are.
    Columns out: topic_rank INT, partition INT, offset LONG, fields, row, drop_reason, exempt, size INT (bytes of the
    raw value), dead_letter STRUCT<topic, timestamp, key, value, headers ARRAY<STRUCT<name, value>>, stage, reason>,
    NULL for a good record, and `more`.
    """
    return events.select(
        "topic_rank",
        "partition",
        "offset",
        "fields",
        "row",
        "drop_reason",
        "exempt",
        *size_and_refused(),
        *more,
    )


def size_and_refused() -> list[Column]:
    """Give what is kept of a record's raw value. Columns in: those of `read_topics`, error.

    Columns out: size and dead_letter, as in `keep_raw_of_dead_letters`.
    """
    letter = dead_letter(F.col("error.stage"), F.col("error.reason"))
    return [
        F.coalesce(F.octet_length("value"), F.lit(0)).alias("size"),
        F.when(F.col("error").isNotNull(), letter).alias("dead_letter"),
    ]


def letters_of_joined(rows: DataFrame, names: Scope) -> DataFrame:
    """Make the dead letters of joined rows that could not go on. Their records' raw bytes stayed behind long before.

    names: of the joined event. Columns in: those of `join_sides`, is_joined BOOLEAN, row, error.
    Column changed: dead_letter, which of such a row has the joined event as JSON in value, and neither topic nor
    headers.
    """
    event = F.to_json(F.struct(*(column.alias(name) for name, column in names.mappable.items())))
    headers = rows.select("dead_letter.headers").schema["headers"].dataType
    letter = F.struct(
        F.lit(None).cast("string").alias("topic"),
        F.lit(None).cast("timestamp").alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
        event.cast("binary").alias("value"),
        F.lit(None).cast(headers).alias("headers"),
        F.col("error.stage").alias("stage"),
        F.col("error.reason").alias("reason"),
    )
    changed = F.when(F.col("is_joined") & F.col("error").isNotNull(), letter).otherwise(F.col("dead_letter"))
    return rows.withColumn("dead_letter", changed)


def dead_letter(stage: Column, reason: Column) -> Column:
    """Make a record's dead letter, a STRUCT as the column dead_letter. Columns in: those of `read_topics`."""
    headers = F.transform("headers", lambda header: F.struct(header["key"].alias("name"), header["value"]))
    raw = [*(F.col(name) for name in ("topic", "timestamp", "key", "value")), headers.alias("headers")]
    return F.struct(*raw, stage.alias("stage"), reason.alias("reason"))
