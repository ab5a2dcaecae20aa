"""The columns `error` and `drop_reason`: why a record is not on its way to the table any more."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def is_active() -> Column:
    """Return whether a record is still on its way to the table, BOOLEAN. Columns in: error, drop_reason."""
    return F.col("error").isNull() & F.col("drop_reason").isNull()


def set_error(events: DataFrame, stage: str, reason: Column) -> DataFrame:
    """Set the error of active records that a stage gives a reason for.

    Columns in: error, drop_reason. Column changed: error. reason: STRING, NULL where nothing is wrong.
    """
    found = F.when(is_active() & reason.isNotNull(), error_of(stage, reason))
    return events.withColumn("error", found.otherwise(F.col("error")))


def error_of(stage: str, reason: Column) -> Column:
    """Return an error, STRUCT<stage STRING, reason STRING>. reason: STRING."""
    return F.struct(F.lit(stage).alias("stage"), reason.alias("reason"))
