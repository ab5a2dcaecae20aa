import pytest

from glassflow_dagster.definition.model.durations import format_duration, parse_duration
from glassflow_dagster.definition.model.types import (
    incomplete_reason,
    kinds_taken,
    parse_column_type,
    parse_written_type,
    same_values,
    unsupported_reason,
    with_usual_case,
)


@pytest.mark.parametrize(
    "text",
    ["String", "Nullable(Int8)", "LowCardinality(Nullable(String))", "DateTime64(3, 'Europe/Berlin')",
     "FixedString(16)", "Enum8('a' = 1, 'it\\'s' = -2)", "Array(Map(String, Nullable(Int8)))", "Decimal(10, 2)",
     "Tuple(String, Int8)", "Tuple(a String, b Array(Tuple(c Int8)))", "Tuple(`a b` String, `c\\`d` Int8)", "JSON",
     "JSON(max_dynamic_paths=10, a.b UInt32, `c d` String, SKIP e.f, SKIP REGEXP 'g.*')"],
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
    [
        ("String", "LowCardinality(Nullable(String))", True),
        ("DateTime", "DateTime('UTC')", True),
        ("DateTime('UTC')", "DateTime('Europe/Berlin')", False),
        ("Enum8", "Enum8('a' = 1)", True),
        ("Enum8('b' = 2, 'a' = 1)", "Enum8('a' = 1, 'b' = 2)", True),
        ("Enum8('b' = 2)", "Enum8('a' = 1, 'b' = 2)", False),
        ("Enum8('a', 'b')", "Enum8('a' = 1, 'b' = 2)", True),
        ("Enum8('a' = 1, 'b')", "Enum8('a' = 1, 'b' = 2)", True),
        ("Enum8('a')", "Enum8('a' = 1, 'b' = 2)", False),
        ("FixedString", "FixedString(3)", True),
        ("FixedString(3)", "FixedString(4)", False),
        ("Int8", "Int16", False),
        ("DateTime64", "DateTime64(6, 'UTC')", True),
        ("DateTime64(3)", "DateTime64(3, 'UTC')", True),
        ("DateTime64(3)", "DateTime64(6)", False),
        ("Decimal64(2)", "Decimal(18, 2)", True),
        ("Decimal(9)", "Decimal(9, 0)", True),
        ("Decimal", "Decimal(10, 0)", True),
        ("Decimal32(2)", "Decimal(18, 2)", False),
        ("Array(String)", "Array(LowCardinality(Nullable(String)))", True),
        ("Array(String)", "Array(Int8)", False),
        ("Map(String, String)", "Map(LowCardinality(String), Nullable(String))", True),
        ("Array(Map(String, Decimal32(1)))", "Array(Map(String, Decimal(9, 1)))", True),
        ("Tuple(String, Int8)", "Tuple(a String, b Nullable(Int8))", True),
        ("Tuple(a String, b Int8)", "Tuple(a String, b Int8)", True),
        ("Tuple(a String, b Int8)", "Tuple(a String, c Int8)", False),
        ("Tuple(a String)", "Tuple(a String, b Int8)", False),
        ("JSON", "JSON(max_dynamic_paths=10, a UInt8)", True),
        ("JSON(a UInt8)", "JSON(a UInt8)", True),
        ("JSON(a UInt8)", "JSON", False),
    ],
)
def test_a_declared_type_means_the_columns_own(declared: str, actual: str, same: bool) -> None:
    assert same_values(parse_column_type(declared), parse_column_type(actual)) is same


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Nested(Int8)", "Nested(Int8) needs names and types of its elements, as in Nested(a String, b Int64)"),
        ("SimpleAggregateFunction(sum)", "needs a function and its type, as in SimpleAggregateFunction(sum, UInt64)"),
        ("Point(2)", "Point(2) is not a ClickHouse type; write Point"),
        ("Money", "unsupported ClickHouse column type 'Money'; use one of Bool, Int8"),
        ("Array(Float16)", "unsupported ClickHouse column type 'Float16'; did you mean 'Float64'?"),
        ("string", "unsupported ClickHouse column type 'string'; did you mean 'String'?"),
        ("nullable(Int8)", "unsupported ClickHouse column type 'nullable(Int8)'; did you mean 'Nullable'?"),
        ("nested(a String)", "unsupported ClickHouse column type 'nested(a String)'; did you mean 'Nested'?"),
        ("Enum", "unsupported ClickHouse column type 'Enum'; did you mean 'Enum8'?"),
        ("BINARY(0)", "FixedString needs its length"),
        (
            "Tuple(a Map(String, Variant(String, Int8)))",
            "Variant(String, Int8) cannot be written; leave",
        ),
        ("AggregateFunction(quantiles(0.5, -0.9), Float64)", "leave the column out of the mapping"),
        ("Dynamic(max_types=3)", "leave the column out of the mapping"),
        ("IntervalDay", "leave the column out of the mapping"),
        ("Decimal(77, 2)", "Decimal(77, 2) has more digits than ClickHouse holds"),
        ("Decimal(5, 6)", "has more digits"),
        ("Decimal64", "Decimal64 needs its scale, 0 to 18, as in Decimal64(2)"),
        ("DateTime64(10)", "needs a precision of 0 to 9"),
        ("FixedString(0)", "FixedString needs its length"),
        ("Array", "Array needs the type of its elements"),
        ("Map(String)", "Map needs the types of keys and values"),
        ("Map(Array(String), Int8)", "cannot be filled from an object"),
        ("Tuple", "Tuple needs the types of its elements"),
        ("Tuple(a String, Int8)", "names some elements and others not"),
        ("Tuple(a String, a Int8)", "Tuple needs the types of its elements"),
        ("UUID(4)", "UUID(4) is not a ClickHouse type; write UUID"),
    ],
)
def test_types_that_cannot_be_written_are_named(text: str, reason: str) -> None:
    assert reason in str(unsupported_reason(parse_column_type(text)))


@pytest.mark.parametrize(
    "text",
    ["Nullable(Int64)", "Int256", "Decimal(76, 76)", "Decimal256(3)", "LowCardinality(Nullable(FixedString(3)))",
     "Array(Array(Map(IPv4, Tuple(UUID, Array(Nullable(Date32))))))", "JSON(a Dynamic)", "Enum8", "FixedString"],
)  # fmt: skip
def test_types_that_can_be_written(text: str) -> None:
    assert unsupported_reason(parse_column_type(text)) is None


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("SimpleAggregateFunction(sum, UInt64)", "UInt64"),
        ("Nullable(SimpleAggregateFunction(groupArrayLastArray(5), Array(Point)))",
         "Nullable(Array(Tuple(Float64, Float64)))"),
        ("Nested(a String, b Nested(c Int8))", "Array(Tuple(a String, b Array(Tuple(c Int8))))"),
        ("MultiPolygon", "Array(Array(Array(Tuple(Float64, Float64))))"),
        ("Map(String, Point)", "Map(String, Tuple(Float64, Float64))"),
        ("JSON(a Point)", "JSON(a Point)"),
        ("Point(2)", "Point(2)"),
    ],
)  # fmt: skip
def test_names_of_other_types_are_written_as_those(name: str, written: str) -> None:
    assert str(parse_written_type(name)) == written


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("BIGINT", "Int64"), ("int", "Int32"), ("INT(11)", "Int32"), ("TINYINT(1) unsigned", "UInt8"),
        ("Boolean", "Bool"), ("VARCHAR(255)", "String"), ("character varying (3)", "String"),
        ("BINARY(3)", "FixedString(3)"),
        ("double precision", "Float64"), ("NUMERIC(10, 2)", "Decimal(10, 2)"), ("decimal64(3)", "Decimal64(3)"),
        ("DateTime32('UTC')", "DateTime('UTC')"), ("datetime64(3)", "DateTime64(3)"), ("DATETIME(3)", "DateTime64(3)"),
        ("DateTime(0, 'UTC')", "DateTime('UTC')"), ("timestamp", "DateTime"), ("date", "Date"), ("json", "JSON"),
        ("ENUM('a', 'b')", "Enum8('a', 'b')"), ("Enum('a' = 128)", "Enum16('a' = 128)"), ("INET6", "IPv6"),
        ("Nullable(INT UNSIGNED)", "Nullable(UInt32)"), ("Map(VARCHAR, double precision)", "Map(String, Float64)"),
        ("Tuple(a INT UNSIGNED, b TEXT)", "Tuple(a UInt32, b String)"),
        # As for the server, the first of two words in a Tuple is a name.
        ("Tuple(INT UNSIGNED)", "Tuple(INT UInt64)"),
    ],
)  # fmt: skip
def test_an_alias_is_the_type_that_the_server_makes_of_it(alias: str, name: str) -> None:
    assert str(parse_column_type(alias)) == name


def test_what_only_an_existing_table_says_is_missing_in_a_new_one() -> None:
    assert "Enum8('a' = 1, 'b' = 2)" in str(incomplete_reason(parse_column_type("Array(Enum8)")))
    assert "FixedString(16)" in str(incomplete_reason(parse_column_type("LowCardinality(FixedString)")))
    assert incomplete_reason(parse_column_type("Map(String, Enum8('a' = 1))")) is None


def test_a_tuple_without_names_takes_arrays_only() -> None:
    assert kinds_taken(parse_column_type("Tuple(String, Int8)")) == ("array",)
    assert kinds_taken(parse_column_type("Nullable(Tuple(a String))")) == ("array", "map")


@pytest.mark.parametrize(
    ("text", "usual"),
    [("nullable(uuid)", "Nullable(UUID)"), ("array(lowcardinality(string))", "Array(LowCardinality(String))"),
     ("map(string, decimal64(2))", "Map(String, Decimal64(2))"), ("uint256", "UInt256"), ("ipv4", "IPv4"),
     ("enum8('string' = 1)", "Enum8('string' = 1)"),
     ("tuple(date date32, `json` json)", "Tuple(date Date32, `json` JSON)")],
)  # fmt: skip
def test_types_in_lower_case_are_given_their_own(text: str, usual: str) -> None:
    assert with_usual_case(text) == usual


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
