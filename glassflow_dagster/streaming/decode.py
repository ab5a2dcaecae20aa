"""From a record's bytes to typed fields, or to the reason why not."""

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.model import SchemaField
from glassflow_dagster.streaming.sides import FIELDS, is_of


def decode(records: DataFrame, fields: Sequence[Sequence[SchemaField]]) -> DataFrame:
    """Decode JSON strictly by each source's declared fields (state/StrictJson.scala says how).

    Columns in: payload BINARY, framing_error STRING (those of `unframe`), and source INT (see `by_source`).
    Columns added: fields STRUCT (a column a declared field: STRING, LONG, DECIMAL(20,0), DOUBLE or BOOLEAN by its kind;
    array, map and any as their JSON text), right_fields STRUCT for a second source (each is NULL for the other's
    records), refusal STRUCT<stage STRING, reason STRING>, NULL for a good record, and dropped STRING: why a good record
    is not to be written, NULL where it is.
    """
    columns = FIELDS[: len(fields)]
    for number, (column, declared) in enumerate(zip(columns, fields, strict=True)):
        decoded = _decoded(declared)
        records = records.withColumn(column, decoded if len(fields) == 1 else F.when(is_of(number), decoded))
    error = F.coalesce(F.col("framing_error"), *(F.col(column)["_error"] for column in columns))
    return records.withColumn("refusal", F.when(error.isNotNull(), _refusal("decode", error))).withColumn(
        "dropped", F.lit(None).cast("string")
    )


def _decoded(fields: Sequence[SchemaField]) -> Column:
    spec = json.dumps([[field.name, field.kind, field.needed] for field in fields])
    return F.call_function("glassflow_decode", F.col("payload"), F.lit(spec))


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
