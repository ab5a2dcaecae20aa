"""The program in the JVM agrees with a plain interpreter, on random expressions and records."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from glassflow_dagster.definition.expressions.check import Checked, check_filter, check_transform
from glassflow_dagster.definition.expressions.expression_error import ExpressionError
from glassflow_dagster.definition.expressions.signatures import (
    BUILTINS,
    FROM_UNIX,
    HELPERS,
    METHODS,
    PREDICATES,
    UNSUPPORTED,
)
from glassflow_dagster.definition.model.types import FieldKind
from tests.stream.expressions.evaluation import Result, evaluate
from tests.stream.expressions.interpreter import NoValueError, interpret

FIELDS: dict[str, FieldKind] = {"i": "int", "f": "float", "s": "string", "b": "bool", "m": "map", "l": "array"}

_integers = st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)])
_floats = st.sampled_from([0.0, -1.5, 2.0, 3.25])
_texts = st.sampled_from(["", "a", "ab", "1", "é"])
_scalars = st.integers(-3, 3) | st.none() | st.integers(-3, 3) | _floats | _texts | st.booleans()
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)
_objects = st.fixed_dictionaries({"a": _values}, optional={"b": _values})
_records = st.fixed_dictionaries(
    {
        "i": st.integers(-3, 3) | _integers | st.none(),
        "f": _floats | _floats | st.none(),
        "s": _texts | _texts | st.none(),
        "b": st.booleans() | st.booleans() | st.none(),
        "m": st.builds(dict, a=_objects, b=_scalars) | _objects | st.none(),
        "l": st.lists(_scalars, min_size=1, max_size=3) | st.lists(_values, max_size=3) | st.none(),
    }
)

_inner = st.sampled_from(["m.a", "m?.b", 'm["a"]', "l[0]", "l?.[-1]", "m.a.b", "m?.a?.b", "l[1][0]", "m.a?.[0]"])
_number_leaf = st.sampled_from(["i", "f", "0", "2", "2.5", "i", "f"]) | _inner
_text_leaf = st.sampled_from(["s", "s", '"a"', '""', '"1"']) | _inner
_numbers = st.recursive(
    _number_leaf,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "%", "??"]), inner)
        | st.builds("(-{})".format, inner)
        | st.builds("(b ? {} : {})".format, inner, inner)
    ),
    max_leaves=4,
)
_strings = st.builds("({} {} {})".format, _text_leaf, st.sampled_from(["+", "??"]), _text_leaf) | _text_leaf
_bounds = st.sampled_from(["", "0", "1", "-1", "-2", "5", "i"])
_list_leaf = st.sampled_from(
    ["l", "l", "m.a", "[i, 2]", "[s, nil, f]", "[b, l]", "1..3", "i..2", "[{a: i, b: s}]", "[]"]
) | st.builds("{}[{}:{}]".format, st.sampled_from(["l", "(0..3)", "m.a"]), _bounds, _bounds)
_element_tests = st.sampled_from(
    ["# == 1", "# == i", '# == "a"', "# != nil", "# > 0", "# in [1, i]", "#?.a == 1", ".a == i", "# == s", "b", "true"]
)
_said = st.sampled_from(["#", "# + 1", "#?.a", "[#, i]", "{k: #}", "# == nil", "s", "#?.[0]", "# * i"])


_lists = st.recursive(
    _list_leaf,
    lambda inner: (
        st.builds("filter({}, {})".format, inner, _element_tests) | st.builds("map({}, {})".format, inner, _said)
    ),
    max_leaves=2,
)
_of_lists = (
    st.builds("{}({}, {})".format, st.sampled_from(["any", "all", "none", "one"]), _lists, _element_tests)
    | st.builds("any({}, any(l, # == i) or {})".format, _lists, _element_tests)
    | st.builds("(b and all({}, {}))".format, _lists, _element_tests)
    | st.builds(
        "{}({}, {})".format, st.sampled_from(["find", "findLast", "findIndex", "count"]), _lists, _element_tests
    )
    | st.builds("sum({}, {})".format, _lists, st.sampled_from(["i", "# * 2", "#", "f"]))
    | st.builds("get({}, {})".format, _lists, st.sampled_from(["0", "-1", "9", "i"]))
    | st.builds("s[{}:{}]".format, _bounds, _bounds)
    | st.builds("({} in {})".format, st.sampled_from(["i", "f", "s", "2", '"a"']), _lists)
    | st.sampled_from(["m?.a.b", "m.a?.b.a", "m?.a[0].b", "m?.b?.a.b", 'get(m, "a")?.b', "{a: s, b: [m, l]}"])
    | _lists
)
_leaf_conditions = (
    st.sampled_from(["b", "true", "m.b", "s == nil", "i != nil", "m == nil", "nil in l", "m.a != nil", '"a" in m'])
    | st.builds("({} {} {})".format, _numbers, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), _numbers)
    | st.builds("({} {} {})".format, _strings, st.sampled_from(["==", "<", ">=", "contains", "startsWith"]), _strings)
    | st.builds("({} {} {})".format, _inner, st.sampled_from(["==", "!="]), _inner)
    | st.builds("({} {} [{}, {}])".format, _numbers, st.sampled_from(["in", "not in"]), _numbers, _inner)
    | st.builds('({} in ["a", "b"])'.format, _text_leaf)
    | st.builds("({} in l)".format, st.sampled_from(["i", "f", "s", "b", "m.a", '"a"', "2"]))
)
_conditions = st.recursive(
    _leaf_conditions,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("(not {})".format, inner)
        | st.builds("({} ? {} : {})".format, inner, inner, inner)
    ),
    max_leaves=4,
)


def _checked(text: str) -> Checked | None:
    try:
        return check_transform(text, FIELDS)
    except ExpressionError:
        return None


def _expected(checked: Checked, record: dict[str, Any]) -> tuple[Any, bool]:
    # Numbers in JSON are floats.
    read = {name: _with_floats(value) if FIELDS[name] in ("map", "array") else value for name, value in record.items()}
    try:
        value = interpret(checked.root, read)
    except NoValueError:
        return None, True
    return value, False


def _with_floats(value: Any) -> Any:
    match value:
        case dict():
            return {name: _with_floats(inner) for name, inner in value.items()}
        case list():
            return [_with_floats(inner) for inner in value]
        case int() if not isinstance(value, bool):
            return float(value)
    return value


def _agree(checked: Checked, result: Result, value: Any, *, fails: bool) -> bool:
    if fails or result.error is not None:
        return fails and result.error is not None and result.value is None
    return _alike(result.value, value, exact=checked.kind in ("int", "ints"))


def _alike(found: Any, expected: Any, *, exact: bool = False) -> bool:
    """Compare values; numbers that pass through floats to their first digits, unless `exact`."""
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(_alike(*pair, exact=exact) for pair in zip(found, expected, strict=True))
        )
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            _alike(found.get(name), expected.get(name)) for name in found.keys() | expected.keys()
        )
    if isinstance(expected, (int, float)) and not isinstance(expected, bool) and not exact:
        return type(found) in (int, float) and math.isclose(found, expected, rel_tol=1e-12)
    return bool(found == expected) and isinstance(found, bool) == isinstance(expected, bool)


_expressions = st.one_of(_conditions, _conditions, _of_lists, _of_lists, _numbers, _strings, _inner)
_drawn = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def _compare(spark: SparkSession, text: str, record: dict[str, Any]) -> None:
    checked = _checked(text)
    if checked is not None:
        result = evaluate(spark, checked, record)
        value, fails = _expected(checked, record)
        assert _agree(checked, result, value, fails=fails), (result, value, fails)


@_drawn
@given(_expressions, _records)
def test_program_and_interpreter_agree(spark: SparkSession, text: str, record: dict[str, Any]) -> None:
    _compare(spark, text, record)


@pytest.mark.long
@settings(_drawn, max_examples=20_000)
@given(_expressions, st.lists(_records, min_size=5, max_size=5))
def test_program_and_interpreter_agree_on_many(spark: SparkSession, text: str, records: list[dict[str, Any]]) -> None:
    for record in records:
        _compare(spark, text, record)


def test_every_function_that_validates_is_evaluated(spark: SparkSession) -> None:
    calls: Any = spark._jvm.glassflow.Call
    # now() is a field of the program, and duration() a literal.
    assert _names(calls.BUILTINS()) == set(BUILTINS) - {"now", "duration"}
    assert _names(calls.HELPERS()) == {*HELPERS, *FROM_UNIX}
    methods = spark._jvm.glassflow.TimeCalls.METHODS()
    assert {kind: _names(methods.apply(kind)) for kind in METHODS} == {
        kind: set(names) for kind, names in METHODS.items()
    }
    assert not set(UNSUPPORTED) & {*BUILTINS, *HELPERS, *PREDICATES}


def _names(of_scala: Any) -> set[str]:
    return set(of_scala.keySet().mkString(" ").split())


def test_functions_and_inner_values_meet_in_one_condition(spark: SparkSession) -> None:
    checked = check_filter("m.a.b > 1 and getQueryParam(s, 'x') in ['1'] and l[0] == s", FIELDS)
    record = {"m": {"a": {"b": 2}}, "s": "x=1", "l": ["x=1"]}
    assert evaluate(spark, checked, record) == Result(value=True, error=None)
