"""From a record's bytes to typed fields, or to the reason why not."""

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.model import SchemaField


def decode(records: DataFrame, fields: Sequence[SchemaField]) -> DataFrame:
    """Decode JSON strictly by the declared fields (state/StrictJson.scala says how).

    Columns in: payload BINARY, and framing_error STRING (those of `unframe`).
    Columns added: fields STRUCT (a column a declared field: STRING, LONG, DECIMAL(20,0), DOUBLE or BOOLEAN by its kind;
    array, map and any as their JSON text), refusal STRUCT<stage STRING, reason STRING>, NULL for a good record, and
    dropped STRING: why a good record is not to be written, NULL where it is.
    """
    spec = json.dumps([[field.name, field.kind, field.needed] for field in fields])
    decoded = records.withColumn("fields", F.call_function("glassflow_decode", F.col("payload"), F.lit(spec)))
    error = F.coalesce(F.col("framing_error"), F.col("fields")["_error"])
    return decoded.withColumn("refusal", F.when(error.isNotNull(), _refusal("decode", error))).withColumn(
        "dropped", F.lit(None).cast("string")
    )


def goes_on() -> Column:
    """Whether a record is still on its way to the table. Columns in: refusal, dropped."""
    return F.col("refusal").isNull() & F.col("dropped").isNull()


def refuse(events: DataFrame, stage: str, reason: Column) -> DataFrame:
    """Refuse the records that a stage gives a reason for, unless one before it did.

    Columns in: refusal, dropped. Column changed: refusal. reason: STRING, NULL where nothing is wrong.
    """
    refused = F.when(goes_on() & reason.isNotNull(), _refusal(stage, reason))
    return events.withColumn("refusal", refused.otherwise(F.col("refusal")))


def _refusal(stage: str, reason: Column) -> Column:
    return F.struct(F.lit(stage).alias("stage"), reason.alias("reason"))
