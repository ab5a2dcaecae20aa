"""Refused records: what is kept of them on their way to the dead letter table.

A good record's raw bytes are dropped before deduplication and the sort; a refused one's travel on beside it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812


def keep_raw_of_refused(events: DataFrame, *more: str) -> DataFrame:
    """Trim every record to what the rest of its way needs.

    Columns in: those of `read_topics`, fields, refusal, dropped, exempt, row, and `more`, which pass as they are.
    Columns out: topic_rank INT, partition INT, offset LONG, fields, row, dropped, exempt, size INT (bytes of the raw
    value), refused STRUCT<topic, timestamp, key, value, headers ARRAY<STRUCT<name, value>>, stage, reason>, NULL for a
    good record, and `more`.
    """
    refused = dead_letter(F.col("refusal.stage"), F.col("refusal.reason"))
    return events.select(
        "topic_rank",
        "partition",
        "offset",
        "fields",
        "row",
        "dropped",
        "exempt",
        F.coalesce(F.octet_length("value"), F.lit(0)).alias("size"),
        F.when(F.col("refusal").isNotNull(), refused).alias("refused"),
        *more,
    )


def dead_letter(stage: Column, reason: Column) -> Column:
    """Make a record's dead letter, a STRUCT as `refused`. Columns in: those of `read_topics`."""
    headers = F.transform("headers", lambda header: F.struct(header["key"].alias("name"), header["value"]))
    raw = [*(F.col(name) for name in ("topic", "timestamp", "key", "value")), headers.alias("headers")]
    return F.struct(*raw, stage.alias("stage"), reason.alias("reason"))
