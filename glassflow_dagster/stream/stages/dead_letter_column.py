"""Dead letters within the query: the column `dead_letter`, which carries the raw record to the sink.

A good record's raw bytes are dropped before deduplication and the sort; a dead letter's are kept in this column.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.stream.stages.columns import EVENT, ITEM, RECORD_SIZE
from glassflow_dagster.stream.stages.scope import Scope


def keep_raw_of_dead_letters(events: DataFrame, *more: str) -> DataFrame:
    """Select the columns that the stages after the mapping need; raw bytes are kept for dead letters only.

    Columns in: those of `read_records`, fields, error, drop_reason, exempt, row, and `more`, which pass unchanged.
    Columns out: topic_rank INT, partition INT, offset LONG, fields, row, drop_reason, exempt, size INT (bytes of the
    raw value), timestamp LONG (Kafka's, milliseconds since 1970), dead_letter STRUCT<topic, timestamp, key, value,
    headers ARRAY<STRUCT<name, value>>, stage, reason>, NULL for a good record, and `more`. Of an OTLP source also item
    INT, and event BINARY: the value of an event that becomes a row, which Kafka does not have by itself. The size of a
    row that stands for a record is that of the record's events.
    """
    of_items = [F.col(ITEM), F.when(F.col("row").isNotNull(), F.col("value")).alias(EVENT)]
    return events.select(
        "topic_rank",
        "partition",
        "offset",
        *(of_items if ITEM in events.columns else ()),
        "fields",
        "row",
        "drop_reason",
        "exempt",
        "timestamp",
        *size_and_dead_letter(*((RECORD_SIZE,) if RECORD_SIZE in events.columns else ())),
        *more,
    )


def size_and_dead_letter(*sizes: str) -> list[Column]:
    """Return the columns size and dead_letter of `keep_raw_of_dead_letters`.

    sizes: columns that have the size of some rows, INT. Columns in: those of `read_records`, error, and `sizes`.
    """
    # A tombstone has no value, and so 0 bytes.
    struct = dead_letter(F.col("error.stage"), F.col("error.reason"))
    return [
        F.coalesce(*sizes, F.octet_length("value"), F.lit(0)).alias("size"),
        F.when(F.col("error").isNotNull(), struct).alias("dead_letter"),
    ]


def dead_letters_of_joined(rows: DataFrame, scope: Scope) -> DataFrame:
    """Turn joined rows with an error into dead letters. The raw bytes of their records were dropped before the join.

    scope: that of the joined event. Columns in: those of `join_inputs`, is_joined BOOLEAN, row, error.
    Column changed: dead_letter. For a joined row with an error its `value` is the joined event as JSON, for the case
    that Kafka no longer has the record; topic, timestamp, key and headers are NULL, so that the sink reads them, and
    the value, from the left event's record in Kafka again.
    """
    event = F.to_json(F.struct(*(column.alias(name) for name, column in scope.mappable.items())))
    headers = rows.select("dead_letter.headers").schema["headers"].dataType
    struct = F.struct(
        F.lit(None).cast("string").alias("topic"),
        F.lit(None).cast("bigint").alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
        event.cast("binary").alias("value"),
        F.lit(None).cast(headers).alias("headers"),
        F.col("error.stage").alias("stage"),
        F.col("error.reason").alias("reason"),
    )
    changed = F.when(F.col("is_joined") & F.col("error").isNotNull(), struct).otherwise(F.col("dead_letter"))
    return rows.withColumn("dead_letter", changed)


def dead_letter(stage: Column, reason: Column) -> Column:
    """Return a record's dead letter, a STRUCT as the column dead_letter. stage, reason: STRING.

    Columns in: those of `read_records`.
    """
    headers = F.transform("headers", lambda header: F.struct(header["key"].alias("name"), header["value"]))
    raw = [*(F.col(name) for name in ("topic", "timestamp", "key", "value")), headers.alias("headers")]
    return F.struct(*raw, stage.alias("stage"), reason.alias("reason"))
