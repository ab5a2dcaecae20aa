"""The value of a transform is converted to the type that the definition names, or rejected."""

from decimal import Decimal
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.definition.expressions.check import check_transform
from glassflow_dagster.definition.expressions.outputs import (
    OUTPUT_KINDS,
    UNCONVERTED_WORDS,
    OutputKind,
    misspelt_output_type,
    output_kind,
)
from glassflow_dagster.definition.expressions.signatures import Kind
from glassflow_dagster.definition.model.types import FIELD_KINDS, FieldKind
from tests.stream.expressions.evaluation import Result, evaluate_output

FIELDS: dict[str, FieldKind] = {
    "s": "string",
    "i": "int",
    "u": "uint",
    "f": "float",
    "b": "bool",
    "m": "map",
    "l": "array",
    "missing": "string",
}

# Expression, output type, and the value for the record below.
CONVERTED: list[tuple[str, str, Any]] = [
    ("i", "string", "7"),
    ("f", "string", "3.7"),
    ("b", "string", "true"),
    ("m", "string", '{"a":1,"big":9007199254740993,"list":["x",2.5,null]}'),
    ("m.a", "string", "1"),
    ("m.big", "string", "9007199254740993"),
    ("m.list", "string", '["x",2.5,null]'),
    ("split('a,b', ',')", "string", '["a","b"]'),
    ("date('2024-10-20')", "string", "2024-10-20T00:00:00Z"),
    ("toInt(f)", "int", 3),
    ("m.a", "int64", 1),
    ("m.big", "int64", 2**53 + 1),
    ("'12'", "int", 12),
    ("u", "int", 9),
    ("i", "int16", 7),
    ("i", "uint64", Decimal(7)),
    ("m.a", "uint", Decimal(1)),
    ("'18446744073709551615'", "uint64", Decimal(2**64 - 1)),
    ("i", "float64", 7.0),
    ("m.a", "float64", 1.0),
    ("i", "number", 7.0),
    ("i > 1", "bool", True),
    ("'true'", "boolean", True),
    ("l", "[]string", '["x","2","2.5",null]'),
    ("m.list", "[]string", '["x","2.5",null]'),
    ("split('a,b', ',')", "[]string", '["a","b"]'),
    ("l", "array", '["x",2,2.5,null]'),
    ("m.list", "array", '["x",2.5,null]'),
    ("split('a,b', ',')", "array", '["a","b"]'),
    ("parseQuery('a=1')", "object", '{"a":"1"}'),
    ("m", "map", '{"a":1,"big":9007199254740993,"list":["x",2.5,null]}'),
    ("nil", "int", None),
    ("nil", "[]string", None),
    ("1..3", "array", "[1,2,3]"),
    ("1..3", "[]string", '["1","2","3"]'),
    ("[i, f]", "[]string", '["7","3.7"]'),
    ("[f]", "string", "[3.7]"),
    ("[true, i > 9]", "", "[true,false]"),
    ("filter(l, # != 2)", "", '["x",2.5,null]'),
    ("[i, nil, {a: l}]", "array", '[7,null,{"a":["x",2,2.5,null]}]'),
    ("{a: i, b: nil}", "", '{"a":7,"b":null}'),
    ("{a: i, b: nil}", "object", '{"a":7,"b":null}'),
    ("find(l, # == 2)", "int", 2),
    ("missing", "string", None),
    ("missing", "array", None),
    ("m.none", "float64", None),
    ("m.none", "object", None),
    # Values of unknown kind stay what they are, others keep the kind of the expression.
    ("m.a", "any", "1"),
    ("m.list", "any", '["x",2.5,null]'),
    ("m.list[0]", "any", '"x"'),
    ("m.none", "any", None),
    ("i", "any", 7),
    ("s", "any", "x"),
    # The type names no conversion: the value keeps the kind of the expression.
    ("i", "", 7),
    ("u", "", Decimal(9)),
    ("f", "decimal", 3.7),
    ("b", "", True),
    ("s", "text", "x"),
    ("m", "", '{"a":1,"big":9007199254740993,"list":["x",2.5,null]}'),
    ("l", "", '["x",2,2.5,null]'),
    ("split('a,b', ',')", "", '["a","b"]'),
    ("m.a", "", "1"),
    ("m.list", "", '["x",2.5,null]'),
    ("m.none", "", None),
    ("date('2024-10-20')", "datetime", "2024-10-20T00:00:00Z"),
    ("nil", "", None),
]
# Expression, output type, and words of the error.
REFUSED: list[tuple[str, str, str]] = [
    ("f", "int", "the value is not of type int"),
    ("f * 1e30", "int64", "the value is not of type int64"),
    ("'x'", "int", "the value is not of type int"),
    ("b", "int", "the value is not of type int"),
    ("-i", "uint", "the value is not of type uint"),
    ("'18446744073709551616'", "uint64", "the value is not of type uint64"),
    ("s", "float64", "the value is not of type float64"),
    ("i", "bool", "the value is not of type bool"),
    ("s", "[]string", "the value is not of type []string"),
    ("m.a", "[]string", "the value is not of type []string"),
    ("1..3", "int", "the value is not of type int"),
    ("1..3", "map", "the value is not of type map"),
    ("{a: 1}", "[]string", "the value is not of type []string"),
    ("m", "array", "the value is not of type array"),
    ("m.a", "array", "the value is not of type array"),
    ("i", "object", "the value is not of type object"),
    ("m.list", "object", "the value is not of type object"),
    ("s + missing", "string", "missing is nil"),
    ("s + missing", "", "missing is nil"),
]


RECORD = {
    "s": "x",
    "i": 7,
    "u": 9,
    "f": 3.7,
    "b": True,
    "m": '{"a":1,"big":9007199254740993,"list":["x",2.5,null]}',
    "l": '["x",2,2.5,null]',
}


@pytest.mark.parametrize(("text", "output_type", "value"), CONVERTED)
def test_a_value_becomes_the_type_that_is_named(spark: SparkSession, text: str, output_type: str, value: Any) -> None:
    assert evaluate_output(spark, check_transform(text, FIELDS), RECORD, output_type) == Result(value, None)


@pytest.mark.parametrize(("text", "output_type", "problem"), REFUSED)
def test_a_value_that_the_type_does_not_hold_is_an_error(
    spark: SparkSession, text: str, output_type: str, problem: str
) -> None:
    found = evaluate_output(spark, check_transform(text, FIELDS), RECORD, output_type)
    assert problem in (found.error or "")


def test_every_type_of_a_field_can_be_named() -> None:
    converted = {name: kind for name, kind in FIELD_KINDS.items() if name not in UNCONVERTED_WORDS}
    assert {name: kind for name, kind in OUTPUT_KINDS.items() if name != "[]string"} == converted
    assert get_args(OutputKind) == get_args(FieldKind)


# A duration is rejected as an output.
@pytest.mark.parametrize("kind", sorted(set(get_args(Kind)) - {"duration"}))
def test_every_kind_of_value_has_a_kind_of_field(kind: Kind) -> None:
    assert output_kind(kind, "") in get_args(FieldKind)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("flaot64", "float64"),
        ("String", "string"),
        ("strings", "string"),
        ("in64", "int64"),
        ("[]strng", "[]string"),
        ("boolen", "boolean"),
        ("float64", None),
        ("", None),
        ("datetime", None),
        ("decimal", None),
        ("uuid", None),
    ],
)
def test_a_slip_of_the_pen_is_told_from_a_word_that_converts_nothing(word: str, meant: str | None) -> None:
    assert misspelt_output_type(word) == meant


MANY = "1" * 40 + ".5"
# Expression, output type, and the value for a record with d = 1111...1.5, w = -2 (an int256) and n = 7.
MANY_DIGITS: list[tuple[str, str, Any]] = [
    ("d", "", MANY),
    ("d", "decimal", MANY),
    ("d", "string", MANY),
    ("toString(d)", "string", MANY),
    ("toFloat(d)", "float64", float(MANY)),
    ("d == nil", "bool", False),
    ("w", "int128", "-2"),
    ("n", "uint256", 7),
]


@pytest.mark.parametrize(("text", "output_type", "value"), MANY_DIGITS)
def test_numbers_of_many_digits_pass_through_as_they_are(
    spark: SparkSession, text: str, output_type: str, value: Any
) -> None:
    kinds: dict[str, FieldKind] = {"d": "decimal", "w": "bigint", "n": "int"}
    found = evaluate_output(spark, check_transform(text, kinds), {"d": MANY, "w": "-2", "n": 7}, output_type)
    assert found == Result(value, None)
