"""Calls the JVM's decoders of formats with a schema directly, as a Spark job for each of many values takes long.

tests/e2e/test_schemas.py and tests/definitions run them within pipelines.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pyspark.sql import Row, SparkSession

from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.stream.stages.decode.avro_and_protobuf_in_scala import decoder_spec

DECODERS = {"avro": "AvroDecoder", "protobuf": "ProtobufDecoder"}
UINT_DIGITS = 20


def decoded(spark: SparkSession, source: Source, values: Iterable[bytes | None], registry: str = "") -> list[Row]:
    """Return a row for each value: the declared fields, and `reason`, NULL for a good one."""
    fields = source.schema_fields
    jvm: Any = spark._jvm
    decoder = getattr(jvm.glassflow, DECODERS[source.format])(decoder_spec(source.encoding, fields, registry))
    rows = []
    for value in values:
        row = decoder.decode(value, None)
        found = {field.name: value_of(row, index, field.kind) for index, field in enumerate(fields)}
        rows.append(Row(**found, reason=value_of(row, len(fields), "string")))
    return rows


def value_of(row: Any, index: int, kind: FieldKind) -> Any:
    """Return a value of the JVM's row, as Spark would return it."""
    if row.isNullAt(index):
        return None
    match kind:
        case "int":
            return row.getLong(index)
        case "uint":
            return Decimal(row.getDecimal(index, UINT_DIGITS, 0).toString())
        case "float":
            return row.getDouble(index)
        case "bool":
            return row.getBoolean(index)
    return row.getUTF8String(index).toString()
