import pytest

from glassflow_dagster.config.durations import format_duration, parse_duration
from glassflow_dagster.config.types import (
    integer_range,
    kinds_taken,
    parse_column_type,
    same_values,
    unsupported_reason,
)


@pytest.mark.parametrize(
    "text",
    ["String", "Nullable(Int8)", "LowCardinality(Nullable(String))", "DateTime64(3, 'Europe/Berlin')",
     "FixedString(16)", "Enum8('a' = 1, 'it\\'s' = -2)", "Array(Map(String, Nullable(Int8)))", "Decimal(10, 2)"],
)  # fmt: skip
def test_a_type_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_column_type(text)) == text


@pytest.mark.parametrize(
    "text", ["", "String(", "Nullable", "Nullable(String, Int8)", "Int8)", "A b", "DateTime64(3", "1"]
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a ClickHouse type"):
        parse_column_type(text)


def test_wrappers_change_storage_and_not_values() -> None:
    column = parse_column_type("LowCardinality(Nullable(String))")
    assert (column.base.name, column.nullable, kinds_taken(column)) == ("String", True, ("string", "array", "map"))


@pytest.mark.parametrize(
    ("declared", "actual", "same"),
    [("String", "LowCardinality(Nullable(String))", True), ("DateTime", "DateTime('UTC')", True),
     ("Enum8", "Enum8('a' = 1)", True), ("Int8", "Int16", False), ("DateTime64(3)", "DateTime64(6)", False)],
)  # fmt: skip
def test_a_declared_type_means_the_columns_own(declared: str, actual: str, same: bool) -> None:
    assert same_values(parse_column_type(declared), parse_column_type(actual)) is same


def test_types_that_cannot_be_written_are_named() -> None:
    assert "unsupported ClickHouse column type 'Int128'" in str(unsupported_reason(parse_column_type("Int128")))
    assert unsupported_reason(parse_column_type("Nullable(Int64)")) is None


def test_integer_ranges() -> None:
    assert integer_range("Int8") == (-128, 127)
    assert integer_range("UInt64") == (0, 2**64 - 1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("1h30m", 5400), ("7d", 604800), ("1.5h", 5400), ("1m0.5s", 60.5)],
)
def test_durations(text: str, seconds: float) -> None:
    duration = parse_duration(text)
    assert duration.total_seconds() == seconds
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "-5m", "5w", 5])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
