"""The columns `error` and `drop_reason`: why a record becomes a dead letter, or is dropped."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def is_active() -> Column:
    """Return a condition, BOOLEAN: no stage has made the record a dead letter or dropped it.

    Columns in: error, drop_reason.
    """
    return F.col("error").isNull() & F.col("drop_reason").isNull()


def set_error(events: DataFrame, stage: str, reason: Column) -> DataFrame:
    """Set the error of active records that have a reason, which makes them dead letters.

    stage: the name of the stage, for the dead letter.
    reason: STRING, NULL where nothing is wrong.
    Columns in: error, drop_reason. Column changed: error.
    """
    error = F.when(is_active() & reason.isNotNull(), error_of(stage, reason))
    return events.withColumn("error", error.otherwise(F.col("error")))


def error_of(stage: str, reason: Column) -> Column:
    """Return an error, STRUCT<stage STRING, reason STRING>. reason: STRING."""
    return F.struct(F.lit(stage).alias("stage"), reason.alias("reason"))
