"""From a record's bytes to typed fields, or to the reason why not."""

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.model import SchemaField


def decode(records: DataFrame, fields: Sequence[SchemaField]) -> DataFrame:
    """Decode JSON strictly by the declared fields (state/StrictJson.scala says how).

    Columns in: value BINARY. Columns added: fields STRUCT (a column a declared field: STRING, LONG, DECIMAL(20,0),
    DOUBLE or BOOLEAN by its kind; array and map as their JSON text), refusal STRUCT<stage, reason>, NULL for a good
    record.
    """
    spec = json.dumps([[field.name, field.kind, field.required] for field in fields])
    decoded = records.withColumn("fields", F.call_function("glassflow_decode", F.col("value"), F.lit(spec)))
    error = F.col("fields")["_error"]
    return decoded.withColumn("refusal", F.when(error.isNotNull(), refusal("decode", error)))


def refusal(stage: str, reason: Column) -> Column:
    """Mark a record as refused: STRUCT<stage STRING, reason STRING>."""
    return F.struct(F.lit(stage).alias("stage"), reason.alias("reason"))
