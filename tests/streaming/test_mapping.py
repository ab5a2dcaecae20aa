"""Values that fit their column arrive converted; those that do not are refused with column, type and value."""

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.config.model import Mapping, SchemaField
from glassflow_dagster.config.types import parse_column_type
from glassflow_dagster.streaming.decode import decode
from glassflow_dagster.streaming.mapping import map_columns
from glassflow_dagster.streaming.names import field_names

FITS: list[tuple[str, str, Any, Any]] = [
    ("int", "Int8", -128, -128),
    ("int", "UInt8", 255, 255),
    ("int", "UInt16", 65535, 65535),
    ("int", "UInt32", 2**32 - 1, 2**32 - 1),
    ("int", "UInt64", 2**63 - 1, Decimal(2**63 - 1)),
    ("uint", "UInt64", 2**64 - 1, Decimal(2**64 - 1)),
    ("uint", "Int64", 7, 7),
    ("int", "Nullable(Int32)", None, None),
    ("int", "Float64", 2**53, float(2**53)),
    ("float", "Float64", 1e300, 1e300),
    ("float", "Float32", 0.5, 0.5),
    ("string", "String", "", ""),
    ("string", "LowCardinality(Nullable(String))", None, None),
    ("string", "FixedString(3)", "abc", "abc"),
    ("string", "UUID", "6F9619FF-8B86-D011-B42D-00C04FC964FF", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    ("string", "Enum8('a' = 1, 'b' = 2)", "b", "b"),
    ("string", "Date", "2149-06-06", date(2149, 6, 6)),
    ("string", "Date32", "1900-01-01", date(1900, 1, 1)),
    ("string", "DateTime", "2024-10-28T10:00:05Z", datetime(2024, 10, 28, 10, 0, 5)),
    ("string", "DateTime", "2024-10-28 10:00:05", datetime(2024, 10, 28, 10, 0, 5)),
    ("string", "DateTime", "2024-10-28", datetime(2024, 10, 28)),
    ("string", "DateTime('UTC')", "2024-10-28T12:00:05.9+02:00", datetime(2024, 10, 28, 10, 0, 5)),
    ("string", "DateTime64(9)", "2262-01-01T00:00:00Z", datetime(2262, 1, 1)),
    ("string", "DateTime64(8)", "2299-12-31T00:00:00Z", datetime(2299, 12, 31)),
    ("string", "DateTime64(6)", "2024-10-28T10:00:05.123456Z", datetime(2024, 10, 28, 10, 0, 5, 123456)),
    ("int", "DateTime", 1730109605, datetime(2024, 10, 28, 10, 0, 5)),
    ("float", "DateTime64(3)", 1730109605.125, datetime(2024, 10, 28, 10, 0, 5, 125000)),
    ("bool", "Bool", True, True),
    ("array", "String", [1, 2], "[1, 2]"),
]

DOES_NOT_FIT: list[tuple[str, str, Any, str]] = [
    ("int", "Int8", 300, "300 is out of range -128..127"),
    ("int", "UInt8", -1, "-1 is out of range 0..255"),
    ("int", "UInt64", -1, "-1 is out of range"),
    ("uint", "Int64", 2**63, "9223372036854775808 is out of range"),
    ("int", "Int32", None, "null, but the column is not Nullable"),
    ("string", "String", None, "null, but the column is not Nullable"),
    ("int", "Float64", 2**53 + 1, "9007199254740993 has more digits than Float64 holds"),
    ("float", "Float32", 1e39, "1.0E39 is out of range"),
    ("string", "FixedString(3)", "äöü", "6 bytes are too many for FixedString(3)"),
    ("string", "UUID", "6F9619FF", "'6F9619FF' is no UUID"),
    ("string", "UUID", "6F9619FF-8B86-D011-B42D-00C04FC964FF\n", "is no UUID"),
    ("string", "Date", "2023-01-01\n", "is no date"),
    ("string", "DateTime", "2023-01-01\n", "is no time"),
    ("string", "Enum8('a' = 1, 'b' = 2)", "c", "'c' is none of a, b"),
    ("string", "Date", "2149-06-07", "'2149-06-07' is no date from 1970-01-01 to 2149-06-06"),
    ("string", "Date", "2023-02-29", "'2023-02-29' is no date"),
    ("string", "DateTime", "yesterday", "'yesterday' is no time that DateTime holds"),
    ("string", "DateTime", "2024", "'2024' is no time"),
    ("string", "DateTime", "1969-12-31T23:59:59Z", "'1969-12-31T23:59:59Z' is no time that DateTime holds"),
    ("int", "DateTime", -1, "'-1' is no time that DateTime holds"),
    ("string", "DateTime64(9)", "2024-10-28T10:00:05.123456789Z", "is finer than a microsecond"),
    ("string", "DateTime64(9)", "2263-01-01T00:00:00Z", "is no time that DateTime64(9) holds"),
]


def mapped(spark: SparkSession, kind: str, column: str, value: Any) -> Any:
    fields = [SchemaField(name="x", type=kind, required=False)]
    mapping = [Mapping(name="x", column_name="c", column_type=column)]
    record = json.dumps({"x": value}).encode()
    records = spark.createDataFrame([(record, None)], "payload binary, framing_error string")
    types = {"c": parse_column_type(column)}
    return (
        map_columns(decode(records, fields), mapping, field_names(fields), types).select("row", "refusal").collect()[0]
    )


@pytest.mark.parametrize(("kind", "column", "value", "expected"), FITS)
def test_a_value_that_fits_arrives_converted(
    spark: SparkSession, kind: str, column: str, value: Any, expected: Any
) -> None:
    found = mapped(spark, kind, column, value)
    assert found.refusal is None
    assert found.row.c == expected


@pytest.mark.parametrize(("kind", "column", "value", "reason"), DOES_NOT_FIT)
def test_a_value_that_does_not_fit_is_refused(
    spark: SparkSession, kind: str, column: str, value: Any, reason: str
) -> None:
    found = mapped(spark, kind, column, value)
    assert found.row is None
    assert found.refusal.stage == "mapping"
    assert found.refusal.reason.startswith(f"column 'c' ({column}): ")
    assert reason in found.refusal.reason


def test_kafkas_own_columns_can_be_mapped(spark: SparkSession) -> None:
    fields = [SchemaField(name="x", type="int")]
    columns = {
        "_topic": "String", "_partition": "UInt32", "_offset": "UInt64", "_key": "Nullable(String)",
        "_timestamp": "DateTime64(6)", "_batch_time": "DateTime64(3)",
    }  # fmt: skip
    mapping = [Mapping(name=name, column_name=name, column_type=kind) for name, kind in columns.items()]
    time = datetime(2026, 1, 2, 3, 4, 5, 678901)
    records = spark.createDataFrame(
        [(b'{"x":1}', None, "t", 3, 2**40, None, time, time)],
        "payload binary, framing_error string, topic string, partition int, offset bigint, key binary, "
        "timestamp timestamp, batch_time timestamp",
    )
    types = {name: parse_column_type(kind) for name, kind in columns.items()}
    row = map_columns(decode(records, fields), mapping, field_names(fields), types).select("row.*").collect()[0]
    assert tuple(row) == ("t", 3, Decimal(2**40), None, time, time)
