"""Evaluate expressions in the driver's JVM, by the class that Spark's plans call, without a Spark job."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import SparkSession

from glassflow_dagster.definition.expressions.check import Checked
from glassflow_dagster.definition.expressions.outputs import output_kind
from glassflow_dagster.stream.stages.expressions_in_scala import Evaluated, program
from glassflow_dagster.stream.stages.scope import BATCH_TIME

# The value of now().
NOW = "2024-10-20T08:05:44.5Z"
_SECOND = 1_000_000


@dataclass(frozen=True)
class Result:
    value: Any
    error: str | None


def evaluate(spark: SparkSession, checked: Checked, record: Mapping[str, Any]) -> Result:
    """Evaluate an expression on a record; arrays, objects and what is inside JSON are returned as Python values."""
    output_type = "any" if checked.kind == "any" else ""
    result = evaluate_output(spark, checked, record, output_type)
    if result.value is not None and output_kind(checked.kind, output_type) in ("array", "map", "any"):
        return Result(json.loads(result.value), None)
    return result


def evaluate_output(
    spark: SparkSession, checked: Checked, record: Mapping[str, Any], output_type: str, *, is_condition: bool = False
) -> Result:
    """Evaluate an expression as an output of this type: the value of its column, arrays and objects as JSON text.

    record: JSON fields as Python values, or as their text.
    """
    kind = output_kind(checked.kind, output_type)
    text, names = program([Evaluated("value", checked, kind, output_type, "", is_condition)], {})
    jvm: Any = spark._jvm
    row = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(len(names))
    for index, (name, (of_field, *_)) in enumerate(zip(names, json.loads(text)["fields"], strict=True)):
        _set(jvm, row, index, of_field, _micros() if name == BATCH_TIME else record.get(name))
    found = jvm.glassflow.Program(text).evaluate(None, row)
    if not found.isNullAt(1):
        assert found.isNullAt(0)
        return Result(None, found.getUTF8String(1).toString())
    return Result(None if found.isNullAt(0) else _get(found, kind), None)


def _micros() -> int:
    return round(datetime.fromisoformat(NOW).timestamp() * _SECOND)


def _set(jvm: Any, row: Any, index: int, kind: str, value: Any) -> None:
    """Set a field as a decoder does."""
    if value is None:
        row.setNullAt(index)
    elif kind in ("int", "time"):
        row.setLong(index, value)
    elif kind == "uint":
        number = jvm.java.math.BigDecimal(str(value))
        row.update(index, jvm.org.apache.spark.sql.types.Decimal.apply(number, 20, 0))
    elif kind == "float":
        row.setDouble(index, float(value))
    elif kind == "bool":
        row.setBoolean(index, value)
    else:
        text = value if isinstance(value, str) and kind != "any" else json.dumps(value)
        row.update(index, jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text))


def _get(row: Any, kind: str) -> Any:
    match kind:
        case "int":
            return row.getLong(0)
        case "uint":
            return Decimal(row.getDecimal(0, 20, 0).toString())
        case "float":
            return row.getDouble(0)
        case "bool":
            return row.getBoolean(0)
    return row.getUTF8String(0).toString()
