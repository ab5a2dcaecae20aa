"""Refused records: what is kept of them on their way to the dead letter table.

A good record's raw bytes are dropped before deduplication and the sort; a refused one's travel on beside it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.streaming.names import Names


def keep_raw_of_refused(events: DataFrame, *more: str) -> DataFrame:
    """Trim every record to what the rest of its way needs.

    Columns in: those of `read_topics`, fields, refusal, dropped, exempt, row, and `more`, which pass as they are.
    Columns out: topic_rank INT, partition INT, offset LONG, fields, row, dropped, exempt, size INT (bytes of the raw
    value), refused STRUCT<topic, timestamp, key, value, headers ARRAY<STRUCT<name, value>>, stage, reason>, NULL for a
    good record, and `more`.
    """
    return events.select(
        "topic_rank",
        "partition",
        "offset",
        "fields",
        "row",
        "dropped",
        "exempt",
        *size_and_refused(),
        *more,
    )


def size_and_refused() -> list[Column]:
    """Give what is kept of a record's raw value. Columns in: those of `read_topics`, refusal.

    Columns out: size and refused, as in `keep_raw_of_refused`.
    """
    refused = dead_letter(F.col("refusal.stage"), F.col("refusal.reason"))
    return [
        F.coalesce(F.octet_length("value"), F.lit(0)).alias("size"),
        F.when(F.col("refusal").isNotNull(), refused).alias("refused"),
    ]


def letters_of_joined(rows: DataFrame, names: Names) -> DataFrame:
    """Make the dead letters of joined rows that could not go on. Their records' raw bytes stayed behind long before.

    names: of the joined event. Columns in: those of `join_sides`, is_joined BOOLEAN, row, refusal.
    Column changed: refused, which of such a row has the joined event as JSON in value, and neither topic nor headers.
    """
    event = F.to_json(F.struct(*(column.alias(name) for name, column in names.mappable.items())))
    headers = rows.select("refused.headers").schema["headers"].dataType
    letter = F.struct(
        F.lit(None).cast("string").alias("topic"),
        F.lit(None).cast("timestamp").alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
        event.cast("binary").alias("value"),
        F.lit(None).cast(headers).alias("headers"),
        F.col("refusal.stage").alias("stage"),
        F.col("refusal.reason").alias("reason"),
    )
    refused = F.when(F.col("is_joined") & F.col("refusal").isNotNull(), letter).otherwise(F.col("refused"))
    return rows.withColumn("refused", refused)


def dead_letter(stage: Column, reason: Column) -> Column:
    """Make a record's dead letter, a STRUCT as `refused`. Columns in: those of `read_topics`."""
    headers = F.transform("headers", lambda header: F.struct(header["key"].alias("name"), header["value"]))
    raw = [*(F.col(name) for name in ("topic", "timestamp", "key", "value")), headers.alias("headers")]
    return F.struct(*raw, stage.alias("stage"), reason.alias("reason"))
