"""A transformation's value arrives as the type that the definition names, or not at all."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.types import FieldKind
from glassflow_dagster.expressions.columns.compile import compile_expression
from glassflow_dagster.expressions.columns.outputs import as_output
from glassflow_dagster.expressions.language.check import check_transform

FIELDS: dict[str, FieldKind] = {"s": "string", "i": "int", "f": "float", "m": "map", "l": "array"}

# Expression, output type, the value for the record below; an error's words where it has none.
CONVERTED: list[tuple[str, str, Any]] = [
    ("i", "string", "7"),
    ("f", "string", "3.7"),
    ("m", "string", '{"a":1}'),
    ("m.a", "string", "1"),
    ("split('a,b', ',')", "string", '["a","b"]'),
    ("date('2024-10-20')", "string", "2024-10-20T00:00:00Z"),
    ("toInt(f)", "int", 3),
    ("m.a", "int64", 1),
    ("'12'", "int", 12),
    ("i", "float64", 7.0),
    ("m.a", "float64", 1.0),
    ("i > 1", "bool", True),
    ("'true'", "bool", True),
    ("l", "[]string", ["x", "2"]),
    ("split('a,b', ',')", "[]string", ["a", "b"]),
    ("nil", "int", None),
    ("m.none", "float64", None),
    ("m", "object", '{"a":1}'),
    ("i", "object", 7),
]
REFUSED: list[tuple[str, str, str]] = [
    ("f", "int", "the value is no int"),
    ("f * 1e30", "int64", "the value is no int64"),
    ("'x'", "int", "the value is no int"),
    ("s", "float64", "the value is no float64"),
    ("i", "bool", "the value is no bool"),
    ("s", "[]string", "the value is no []string"),
    ("s + missing", "string", "missing is nil"),
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[tuple[str, str], tuple[Any, str | None]]:
    schema = "s string, i bigint, f double, m string, l string, missing string, last int"
    row = ("x", 7, 3.7, '{"a": 1}', '["x", 2]', None)
    frame = spark.createDataFrame([(*row, 0), (*row, 1)], schema)
    fields: dict[str, FieldKind] = {**FIELDS, "missing": "string"}
    cases = [(text, output_type) for text, output_type, _ in (*CONVERTED, *REFUSED)]
    columns = []
    for number, (text, output_type) in enumerate(cases):
        named = {name: F.col(name) for name in fields}
        output = as_output(compile_expression(check_transform(text, fields), named), output_type)
        columns += [output.value.alias(f"v{number}"), output.error.alias(f"e{number}")]
    values = frame.select(*columns).collect()[1]
    return {case: (values[f"v{number}"], values[f"e{number}"]) for number, case in enumerate(cases)}


@pytest.mark.parametrize(("text", "output_type", "value"), CONVERTED)
def test_a_value_becomes_the_type_that_is_named(
    found: dict[tuple[str, str], tuple[Any, str | None]], text: str, output_type: str, value: Any
) -> None:
    assert found[text, output_type] == (value, None)


@pytest.mark.parametrize(("text", "output_type", "problem"), REFUSED)
def test_a_value_that_the_type_does_not_hold_is_an_error(
    found: dict[tuple[str, str], tuple[Any, str | None]], text: str, output_type: str, problem: str
) -> None:
    value, error = found[text, output_type]
    assert value is None
    assert problem in (error or "")
