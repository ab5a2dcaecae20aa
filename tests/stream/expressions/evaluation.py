"""Evaluate many expressions, each on its own record, in few Spark jobs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glassflow_dagster.definition.expressions.check import Checked
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.stream.expressions.compile import BATCH_TIME, compile_expression
from glassflow_dagster.stream.expressions.steps import Steps

# The value of now().
NOW = "2024-10-20T08:05:44.5Z"
# Kinds whose values are returned as JSON.
_INSIDE = ("array", "map", "any", "values")
_TYPES: dict[FieldKind, T.DataType] = {
    "string": T.StringType(),
    "int": T.LongType(),
    "uint": T.DecimalType(20, 0),
    "float": T.DoubleType(),
    "bool": T.BooleanType(),
    "array": T.StringType(),
    "map": T.StringType(),
}


@dataclass(frozen=True)
class Case:
    checked: Checked
    fields: dict[str, FieldKind]
    record: dict[str, Any]


@dataclass(frozen=True)
class Result:
    value: Any
    error: str | None


# Expressions per job: Spark plans one wide row more slowly than several of this width.
_CASES_A_ROW = 40


def evaluate(spark: SparkSession, cases: Sequence[Case]) -> list[Result]:
    """Evaluate each case; values inside JSON are returned as Python values."""
    starts = range(0, len(cases), _CASES_A_ROW)
    return [result for start in starts for result in _evaluate(spark, cases[start : start + _CASES_A_ROW])]


def _evaluate(spark: SparkSession, cases: Sequence[Case]) -> list[Result]:
    schema, row = T.StructType(), []
    for number, case in enumerate(cases):
        for name, kind in case.fields.items():
            schema.add(f"c{number}_{name}", _TYPES[kind])
            row.append(_carried(case.record.get(name), kind))
    schema.add("last", T.IntegerType())
    # Two rows, so that Spark does not fold the expressions into constants.
    frame = spark.createDataFrame([(*row, 0), (*row, 1)], schema)
    columns: list[Column] = []
    steps = Steps()
    for number, case in enumerate(cases):
        named = {name: F.col(f"`c{number}_{name}`") for name in case.fields}
        named[BATCH_TIME] = F.to_timestamp(F.lit(NOW))
        compiled = compile_expression(case.checked, named, steps)
        value = compiled.value
        if compiled.kind in _INSIDE:
            value = F.to_json(value)
        columns += [value.alias(f"v{number}"), compiled.error.alias(f"e{number}")]
    found = steps.before(frame).select(*columns).collect()[1]
    results = []
    for number, case in enumerate(cases):
        value = found[f"v{number}"]
        if case.checked.kind in _INSIDE and value is not None:
            value = json.loads(value)
        results.append(Result(value, found[f"e{number}"]))
    return results


def _carried(value: Any, kind: FieldKind) -> Any:
    if value is None:
        return None
    if kind in ("array", "map"):
        return json.dumps(value)
    if kind == "uint":
        return Decimal(value)
    return float(value) if kind == "float" else value
