"""The column type that is proposed for a field's values."""

from typing import Any

import pytest

from glassflow_dagster.definition.model.types import kinds_taken, parse_column_type, unsupported_reason
from glassflow_dagster.inference.columns import ColumnChoice, choose_column, snake_case
from glassflow_dagster.inference.fields import Field


def column(values: list[Any], name: str = "f", nulls: int = 0) -> ColumnChoice:
    return choose_column(Field(name, len(values) + nulls, values, nulls))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True], "Bool"),
        ([1], "Int64"),
        ([2**63], "UInt64"),
        ([2**64], "UInt128"),
        ([1.5, 2], "Float64"),
        (["a"], "String"),
        (["", "2024-10-28"], "String"),
        (["6F9619FF-8B86-D011-B42D-00C04FC964FF"], "UUID"),
        (["2024-10-28"], "Date"),
        (["1950-10-28"], "Date32"),
        (["1850-10-28"], "String"),
        (["2024-02-30"], "String"),
        (["2024-10-28T10:00:05Z", "2024-10-28 10:00:05"], "DateTime64(3)"),
        (["2024-10-28T10:00:05.123+02:00"], "DateTime64(3)"),
        (["2024-10-28T10:00:05.123456Z"], "DateTime64(6)"),
        (["2024-10-28T10:00:05.123456789Z"], "DateTime64(6)"),
        (["2024-10-28 10:00:05.123456+00", "2024-10-28T10:00Z", "2024-10-28 10:00:05 UTC"], "DateTime64(6)"),
        (["2024-10-28T10:00:05 +0530"], "DateTime64(3)"),
        (["2024-10-28T10:00:05+2500"], "String"),
        (["2024-10-28T25:00:05Z"], "String"),
        (["1899-12-31T23:00:00-02:00"], "String"),
        (["28.10.2024"], "String"),
        ([f"v{number % 5}" for number in range(100)], "LowCardinality(String)"),
        ([f"v{number % 5}" for number in range(20)], "String"),
        ([f"v{number % 60}" for number in range(100)], "String"),
    ],
)
def test_the_values_decide_about_the_type(values: list[Any], kind: str) -> None:
    assert column(values).type == kind


@pytest.mark.parametrize(
    ("name", "values", "kind", "remark"),
    [
        ("created_at", [1_700_000_000], "DateTime", "seconds since 1970"),
        ("payload.eventTime", [1_700_000_000.25], "DateTime64(3)", "seconds since 1970"),
        ("ts_s", [1_700_000_000], "DateTime", "seconds since 1970"),
        (
            "after.ts",
            [1_700_000_000_000],
            "Int64",
            "milliseconds since 1970; DateTime64(3) takes fromUnixMilli(after.ts), an output of a transform",
        ),
        (
            "__source_ts_us",
            [1_700_000_000_000_000],
            "Int64",
            "DateTime64(6) takes fromUnixMicro(__source_ts_us), an",
        ),
        ("createdNanos", [1_700_000_000_000_000_001], "Int64", "fromUnixNano(createdNanos)"),
        ("created at", [1_700_000_000_000], "Int64", "fromUnixMilli of a whole number, an output of a transform"),
        ("ts", [1_700_000_000_000.5], "Float64", "fromUnixMilli of a whole number, an output of a transform"),
        ("order_date", [20_455, 19_000], "Int64", "days since 1970; Date takes fromUnixDay(order_date), an"),
        ("day", [31, 20_455], "Int64", ""),
        # Of another unit than its name says.
        ("time_ms", [1_700_000_000], "Int64", ""),
        ("ts_us", [1_700_000_000_000], "Int64", ""),
        ("ts", [7], "Int64", ""),
        ("account", [1_700_000_000], "Int64", ""),
        ("big", [2**64], "UInt128", ""),
        ("big", [2**128], "UInt256", ""),
        ("big", [2**64, -1], "Int128", ""),
        ("big", [-(2**127) - 1], "Int256", ""),
        ("big", [2**256 + 1], "Float64", "become dead letters"),
        ("big", [0.5, 2**53 + 1], "Float64", "a decimal keeps 76 digits"),
        ("t", ["2024-10-28T10:00:05.123456789Z"], "DateTime64(6)", "cut off"),
        ("nothing", [], "Nullable(String)", "only null"),
    ],
)
def test_a_choice_that_is_none_of_the_values_is_explained(name: str, values: list[Any], kind: str, remark: str) -> None:
    found = column(values, name, nulls=0 if values else 3)
    assert (found.type, remark in found.remark, bool(found.remark)) == (kind, True, bool(remark))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1], "Nullable(Int64)"),
        ([f"v{number % 5}" for number in range(100)], "LowCardinality(Nullable(String))"),
        ([[1]], "Nullable(String)"),
        ([{"a": 1}], "Nullable(String)"),
    ],
)
def test_an_optional_field_gets_a_column_that_takes_null(values: list[Any], kind: str) -> None:
    assert column(values, nulls=1).type == kind


@pytest.mark.parametrize(
    "values",
    [[["a"], []], [[1, 2]], [[1, None]], [[1, "a"]], [[[1]]], [[]], [{"a": 1}], [{"a": {"b": 1}}], [{}]],
    ids=str,
)
def test_arrays_and_maps_get_a_type_that_can_be_written(values: list[Any]) -> None:
    field = Field("f", len(values), values)
    kind = parse_column_type(choose_column(field).type)
    assert unsupported_reason(kind) is None
    assert field.kind in kinds_taken(kind)


def test_an_array_of_objects_is_explained_as_a_flattened_nested_takes_it() -> None:
    ports = [[{"host": "a", "port": 1, "up": True, "x": [1], "n": 1.5}], [{"host": "b", "up": False}], []]
    assert column(ports, "ports").remark == (
        "the array's JSON text; a flattened Nested takes ports.host Array(String) from map(ports, .host), "
        "ports.port Array(Nullable(Int64)) from map(ports, .port), ports.up Array(Bool) from map(ports, .up) ..."
    )
    for other in ([[1, "a"]], [[{"a": [1]}]], [[{"a b": 1}]]):
        assert column(other, "ports").remark == "the array's JSON text"
    assert column(ports, "a b\n").remark == "the array's JSON text"


def test_names_in_any_writing_are_read_by_their_words() -> None:
    names = ["user.orderId", "HTTPServerID", "event-time", "id", "a.b.OrderUUID"]
    assert [snake_case(name) for name in names] == ["order_id", "http_server_id", "event_time", "id", "order_uuid"]
