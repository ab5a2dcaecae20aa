"""Values that fit their column are converted; others are rejected with column, type, position and value.

tests/e2e/test_types.py tests what ClickHouse makes of the rows.
"""

import base64
import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.sink import Mapping
from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.definition.model.types import ColumnType, parse_column_type, second_digits
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.json_in_scala import json_decoder
from glassflow_dagster.stream.stages.mapping_in_scala import TableColumns, map_columns, read_values
from glassflow_dagster.stream.stages.scope import field_scope
from tests.stream.row_binary import read_row

RECORD = "value binary"
UUID = "6F9619FF-8B86-D011-B42D-00C04FC964FF"


def little_endian(value: int, size: int) -> str:
    """Return a big integer's bytes as ClickHouse stores them, in base64."""
    return base64.b64encode(value.to_bytes(size, "little", signed=value < 0)).decode()


class Json(str):
    """A value as JSON text, for values that Python would write differently."""

    __slots__ = ()


# Declared type, column type, value, and the row's value as JSON: see `read_row`.
FITS: list[tuple[str, str, Any, Any]] = [
    ("int", "Int8", -128, -128),
    ("int", "UInt8", 255, 255),
    ("int", "UInt16", 65535, 65535),
    ("int", "UInt32", 2**32 - 1, 2**32 - 1),
    ("int", "UInt64", 2**63 - 1, 2**63 - 1),
    ("uint", "UInt64", 2**64 - 1, 2**64 - 1),
    ("uint", "Int64", 7, 7),
    ("uint256", "Int64", 2**63 - 1, 2**63 - 1),
    ("int", "Nullable(Int32)", None, None),
    ("int", "Float64", 2**53, float(2**53)),
    ("int", "Float64", 2**60, float(2**60)),
    ("uint", "Float32", 2**63, 9.223372e18),
    ("float", "Float64", 10**18, 1e18),
    ("float", "Float64", Json("0.1"), 0.1),
    ("float", "Float64", Json("9007199254740993.0"), float(2**53)),
    ("float", "Float64", Json("1e-320"), 1e-320),
    ("float", "Float64", Json("-0.0"), -0.0),
    ("float", "Float64", Json("0e99999999999"), 0.0),
    ("float", "Float32", Json("0.1"), 0.1),
    ("float", "Float32", 2**24, float(2**24)),
    ("float", "Float32", 16777217.5, 16777218.0),
    ("float", "Float32", Json("6.02214076e23"), 6.0221406e23),
    ("float", "Float32", Json("1e-45"), 1e-45),
    ("float", "Float64", 1e300, 1e300),
    ("float", "Float32", 0.5, 0.5),
    ("float", "Float32", 3.4028234663852886e38, 3.4028235e38),
    ("string", "String", "", ""),
    ("string", "LowCardinality(Nullable(String))", None, None),
    ("string", "FixedString(3)", "abc", "abc"),
    ("string", "UUID", UUID, UUID),
    ("string", "UUID", UUID.replace("-", ""), UUID),
    ("string", "Enum8('a' = 1, 'b' = 2)", "b", "b"),
    ("bool", "Bool", True, True),
    ("array", "String", [1, 2], "[1, 2]"),
    ("int", "Int128", -2, little_endian(-2, 16)),
    ("uint128", "UInt128", 2**128 - 1, little_endian(2**128 - 1, 16)),
    ("string", "UInt128", "1", little_endian(1, 16)),
    ("int256", "Int256", -(2**255), little_endian(-(2**255), 32)),
    ("uint256", "UInt256", 2**256 - 1, little_endian(2**256 - 1, 32)),
    ("decimal", "DateTime64(9)", Json("1730109605.123456789"), Json("1730109605.123456789")),
    # Decimals.
    ("decimal", "Decimal(9, 2)", Json("1.50"), Json("1.50")),
    ("decimal", "Decimal(9, 2)", Json("-9999999.99"), Json("-9999999.99")),
    ("decimal", "Decimal(38, 20)", Json("123456789012345678.12345678901234567890"),
     Json("123456789012345678.12345678901234567890")),
    ("decimal", "Decimal(76, 38)", Json("1e37"), "1" + "0" * 37 + "." + "0" * 38),
    ("decimal", "Decimal64(3)", Json("1.5e1"), Json("15.000")),
    ("decimal", "Decimal(2, 2)", Json("0.0"), Json("0.00")),
    ("float", "Decimal(9, 2)", 0.1, Json("0.10")),
    ("float", "Decimal(38, 20)", 1e17, Json("100000000000000000." + "0" * 20)),
    ("int", "Decimal(18, 4)", 7, Json("7.0000")),
    ("uint", "Decimal256(0)", 2**64 - 1, str(2**64 - 1)),
    ("string", "Decimal(9, 2)", "+1.5", Json("1.50")),
    ("decimal", "Nullable(Decimal(9, 2))", None, None),
    # Addresses.
    ("string", "IPv4", "255.255.255.255", 2**32 - 1),
    ("string", "IPv4", "0.0.0.1", 1),
    ("string", "IPv6", "::1", "AAAAAAAAAAAAAAAAAAAAAQ=="),
    ("string", "IPv6", "1.2.3.4", "AAAAAAAAAAAAAP//AQIDBA=="),
    ("string", "IPv6", "::FFFF:1.2.3.4", "AAAAAAAAAAAAAP//AQIDBA=="),
    ("string", "IPv6", "1:2:3:4:5:6:7:8", "AAEAAgADAAQABQAGAAcACA=="),
    # Dates and times.
    ("string", "Date", "2149-06-06", "2149-06-06"),
    ("string", "Date", "31/12/1999", "1999-12-31"),
    ("string", "Date32", "1900-01-01", "1900-01-01"),
    ("string", "Date32", "2024-02-29", "2024-02-29"),
    ("string", "DateTime", "2024-10-28T10:00:05Z", "2024-10-28T10:00:05.000000Z"),
    ("string", "DateTime", "2024-10-28", "2024-10-28T00:00:00.000000Z"),
    ("string", "DateTime('UTC')", "2024-10-28T12:00:05.9+02:00", "2024-10-28T10:00:05.000000Z"),
    ("string", "DateTime64(9)", "2262-01-01T00:00:00Z", Json("9214646400.000000000")),
    ("string", "DateTime64(9)", "2024-10-28T10:00:05.123456789Z", Json("1730109605.123456789")),
    ("string", "DateTime64(9)", "1969-12-31T23:59:59.999999999Z", Json("-0.000000001")),
    ("string", "DateTime64(7)", "2024-10-28T10:00:05.123456789Z", Json("1730109605.1234567")),
    ("string", "DateTime64(8)", "2299-12-31T00:00:00Z", Json("10413705600.00000000")),
    ("string", "DateTime64(6)", "2024-10-28T10:00:05.123456Z", "2024-10-28T10:00:05.123456Z"),
    ("string", "DateTime64(3)", "1969-12-31T23:59:59.9985Z", "1969-12-31T23:59:59.998000Z"),
    ("string", "DateTime64(3)", "1900-01-01T00:00:00Z", "1900-01-01T00:00:00.000000Z"),
    ("int", "DateTime", 1730109605, "2024-10-28T10:00:05.000000Z"),
    ("int", "DateTime64(3)", -1, "1969-12-31T23:59:59.000000Z"),
    ("float", "DateTime", 1730109605.9, "2024-10-28T10:00:05.000000Z"),
    ("float", "DateTime64(3)", 1730109605.125, "2024-10-28T10:00:05.125000Z"),
    ("float", "DateTime64(6)", 0.0, "1970-01-01T00:00:00.000000Z"),
    ("float", "DateTime64(6)", -0.25, "1969-12-31T23:59:59.750000Z"),
    # Arrays.
    ("array", "Array(UInt8)", [], []),
    ("array", "Array(UInt8)", [0, 255], [0, 255]),
    ("array", "Array(Int64)", Json("[3.0, 1e2]"), [3, 100]),
    ("array", "Array(Nullable(UInt64))", [2**64 - 1, None], [2**64 - 1, None]),
    ("array", "Array(Float64)", Json("[1, 2.5, 9007199254740994, 0.1, 0]"), [1.0, 2.5, float(2**53 + 2), 0.1, 0.0]),
    ("array", "Array(Float32)", Json("[0.5, 0.1, 1152921504606846976, 1.1e30]"), [0.5, 0.1, 1.1529215e18, 1.1e30]),
    ("any", "Float64", Json("0.1"), 0.1),
    ("map", "Map(Float64, String)", {"0.1": ""}, {"0.1": ""}),
    ("array", "Array(String)", ["", "\u00fc\U0001f600", [1, "x"], {"a": None}],
     ["", "\u00fc\U0001f600", '[1, "x"]', '{"a": null}']),
    ("array", "Array(Bool)", [True, False], [True, False]),
    ("array", "Array(Decimal(38, 20))", Json('[123456789012345678.12345678901234567890, "1"]'),
     Json("[123456789012345678.12345678901234567890, 1." + "0" * 20 + "]")),
    ("array", "Array(Int128)", [1, "1"], [little_endian(1, 16)] * 2),
    ("array", "Array(Array(Nullable(Date)))", [[], ["2024-10-28", None]], [[], ["2024-10-28", None]]),
    ("array", "Array(DateTime64(9))", Json('[1730109605.123456789, -1, "2024-10-28", -0.5]'),
     Json("[1730109605.123456789, -1.000000000, 1730073600.000000000, -0.500000000]")),
    ("array", "Array(LowCardinality(Nullable(Enum8('a' = 1))))", ["a", None], ["a", None]),
    ("array", "Array(UUID)", [UUID], [UUID]),
    # Maps. A map with text values turns every value into text, as in GlassFlow.
    ("map", "Map(String, String)",
     Json('{"a":null,"b":5,"c":2.50,"d":true,"e":[1, {"x":2}],"f":"","g":1234567.0,"h":-0.00001,"i":3.0,"j":{}}'),
     {"a": "", "b": "5", "c": "2.5", "d": "true", "e": '[1, {"x":2}]', "f": "", "g": "1.234567e+06", "h": "-1e-05",
      "i": "3", "j": "{}"}),
    ("map", "Map(LowCardinality(String), Nullable(String))", {"a": None, "b": 123456789012345678901234567890},
     {"a": None, "b": "123456789012345678901234567890"}),
    ("map", "Map(String, Int8)", {"a": 1, "": -128}, {"a": 1, "": -128}),
    ("map", "Map(UInt64, Array(Bool))", {str(2**64 - 1): [True]}, {str(2**64 - 1): [True]}),
    ("map", "Map(String, String)", None, {}),
    ("map", "Map(String, Int8)", {}, {}),
    ("array", "Array(Map(String, String))", [{"a": 1}, {}], [{"a": "1"}, {}]),
    # Tuples.
    ("array", "Tuple(Int8, String)", [1, "x"], {"1": 1, "2": "x"}),
    ("array", "Tuple(a Int8, b String)", [1, "x"], {"a": 1, "b": "x"}),
    ("map", "Tuple(a Int8, b Nullable(String))", {"more": [1], "a": 1}, {"a": 1, "b": None}),
    ("array", "Array(Tuple(a Int8, b Array(Tuple(String))))", [{"b": [["x"]], "a": 1}], [{"a": 1, "b": [{"1": "x"}]}]),
    # JSON.
    ("map", "JSON", Json('{"a": {"b":[1,null,{"c":18446744073709551615}]}, "a.c":1.50}'),
     '{"a": {"b":[1,null,{"c":18446744073709551615}]}, "a.c":1.50}'),
    ("string", "JSON", '{"a":1}', '{"a":1}'),
    ("map", "JSON(a.b UInt8, max_dynamic_paths=5)", Json('{"a":{"b":255}}'), '{"a":{"b":255}}'),
    ("map", "Nullable(JSON)", None, None),
    ("array", "Array(JSON)", Json('[{"a":1}, {}]'), ['{"a":1}', "{}"]),
    ("any", "Nullable(JSON)", "null", None),
    ("any", "Nullable(JSON)", '{"a":1}', '{"a":1}'),
]  # fmt: skip

# Declared type, column type, value, and words of the reason.
DOES_NOT_FIT: list[tuple[str, str, Any, str]] = [
    ("int", "Int8", 300, "300 is out of range -128..127"),
    ("int", "UInt8", -1, "-1 is out of range 0..255"),
    ("int", "UInt64", -1, "-1 is out of range 0..18446744073709551615"),
    ("uint", "Int64", 2**63, "9223372036854775808 is out of range -9223372036854775808..9223372036854775807"),
    ("uint256", "UInt64", 2**64, "18446744073709551616 is out of range"),
    ("int", "Float64", 2**53 + 1, "9007199254740993 has more digits than Float64 holds (use Int64 or Decimal)"),
    ("int", "Float64", 2**63 - 1, "9223372036854775807 has more digits than Float64 holds"),
    ("uint", "Float32", 2**24 + 1, "16777217 has more digits than Float32 holds (use Float64)"),
    ("int", "Float32", -(10**18) - 1, "-1000000000000000001 has more digits than Float32 holds"),
    ("float", "Float32", 2**24 + 1, "16777217 has more digits than Float32 holds (use Float64)"),
    ("float", "Float32", Json("1e-50"), "1.0E-50 is too small for Float32, which would make it 0 (use Float64)"),
    ("array", "Array(Float64)", [2**53 + 1], "[0]: 9007199254740993 has more digits than Float64 holds"),
    ("array", "Array(Float64)", Json("[1e-400]"), "[0]: 1e-400 is too small for Float64, which would make it 0"),
    ("array", "Array(Float32)", [1, 16777217], "[1]: 16777217 has more digits than Float32 holds"),
    ("array", "Array(Float32)", Json("[-1e-50]"), "[0]: -1e-50 is too small for Float32"),
    ("any", "Float32", Json("16777217"), "16777217 has more digits than Float32 holds"),
    ("map", "Map(Float64, String)", {str(2**53 + 1): ""}, "9007199254740993: 9007199254740993 has more digits"),
    ("float", "Float32", 1e39, "1.0E39 is out of range of Float32"),
    ("string", "FixedString(3)", "\u00e4\u00f6", "'\u00e4\u00f6' is too long: 4 bytes are too many for FixedString(3)"),
    ("string", "FixedString(3)", "x" * 500, "'" + "x" * 100 + "' is too long: 500 bytes"),
    ("any", "Bool", 1, "expected bool, got number (output n == 1 in a transform)"),
    ("any", "UInt8", True, "expected a whole number, got bool (output b ? 1 : 0 in a transform)"),
    ("array", "Array(Int256)", [True], "[0]: expected a whole number, got bool (output b ? 1 : 0 in a transform)"),
    ("string", "UUID", "6F9619FF",
     "'6F9619FF' is not a UUID (32 hexadecimal digits, grouped 8-4-4-4-12 or not at all)"),
    ("string", "UUID", "g" * 32, f"'{'g' * 32}' is not a UUID"),
    ("string", "UUID", UUID.replace("-", "0"), f"'{UUID.replace('-', '0')}' is not a UUID"),
    # ClickHouse reads neither of them.
    ("string", "UUID", "{" + UUID + "}", "'{" + UUID + "}' is not a UUID"),
    ("string", "UUID", "urn:uuid:" + UUID, f"'urn:uuid:{UUID}' is not a UUID"),
    ("string", "UUID", UUID + "\n", f"'{UUID}\n' is not a UUID"),
    ("string", "Enum8('a' = 1, 'b' = 2)", "c", "'c' is not one of a, b"),
    ("int", "UInt256", -1, "-1 is out of range of UInt256"),
    ("int256", "Int128", 2**127, f"{2**127} is out of range of Int128"),
    ("string", "Int128", "1.5", "expected a whole number, got 1.5"),
    ("string", "Int128", "x", "'x' is not a number"),
    ("string", "UInt256", "1e99999999", "1E+99999999 is out of range of UInt256"),
    ("decimal", "Decimal(9, 2)", Json("1.234"), "1.234 has more than 2 digits after the point"),
    ("decimal", "Decimal(9, 2)", Json("10000000"), "10000000 is out of range of Decimal(9, 2)"),
    ("float", "Decimal(9, 2)", 0.125, "0.125 has more than 2 digits after the point"),
    ("string", "Decimal(9, 2)", "1,5", "'1,5' is not a number"),
    ("string", "Decimal(9, 2)", "1e-999999999", "1E-999999999 has more than 2 digits"),
    ("string", "IPv4", "256.0.0.1", "'256.0.0.1' is not an IPv4 address"),
    ("string", "IPv4", "010.0.0.1", "'010.0.0.1' is not an IPv4 address"),
    ("string", "IPv4", "localhost", "'localhost' is not an IPv4 address"),
    ("string", "IPv6", "1::2::3", "'1::2::3' is not an IPv6 address"),
    ("string", "IPv6", "1:2:3:4:5:6:7", "'1:2:3:4:5:6:7' is not an IPv6 address"),
    ("string", "IPv6", "1:2:3:4:5:6:7:8:9", "'1:2:3:4:5:6:7:8:9' is not an IPv6 address"),
    ("string", "IPv6", "12345::", "'12345::' is not an IPv6 address"),
    ("string", "IPv6", "fe80::1%eth0", "'fe80::1%eth0' is not an IPv6 address"),
    ("string", "IPv6", "1.2.3.4::", "'1.2.3.4::' is not an IPv6 address"),
    ("string", "Date", "2149-06-07", "'2149-06-07' is not a date from 1970-01-01 to 2149-06-06"),
    ("string", "Date", "2023-02-29", "'2023-02-29' is not a date"),
    ("string", "Date", "2023-01-01\n", "'2023-01-01\n' is not a date"),
    ("string", "Date", "2024-10-28T10:00:05Z",
     "'2024-10-28T10:00:05Z' has a time of day, which Date does not keep (output field[:10] in a transform)"),
    ("string", "Date32", "2024-10-28 00:00", "'2024-10-28 00:00' has a time of day, which Date32 does not keep"),
    ("string", "Date", "2024-10-28T25:00:05Z", "'2024-10-28T25:00:05Z' is not a date from 1970-01-01 to 2149-06-06"),
    ("array", "Array(Date)", ["2024-10-28T10:00Z"], "[0]: '2024-10-28T10:00Z' has a time of day"),
    ("string", "Date32", "2300-01-01", "'2300-01-01' is not a date from 1900-01-01 to 2299-12-31"),
    ("string", "DateTime", "yesterday", "'yesterday' is not a time that DateTime holds (write 2024-10-28T10:00:05Z"),
    ("string", "DateTime", "2024", "'2024' is not a time"),
    ("string", "DateTime", "2023-01-01\n", "'2023-01-01\n' is not a time"),
    ("string", "DateTime", "2023-02-29", "'2023-02-29' is not a time"),
    ("string", "DateTime", "1969-12-31T23:59:59Z",
     "'1969-12-31T23:59:59Z' is not a time that DateTime holds (1970-01-01T00:00:00Z to 2106-02-07T06:28:15Z)"),
    ("string", "DateTime", "2106-02-07T06:28:16Z", "'2106-02-07T06:28:16Z' is not a time that DateTime holds"),
    ("int", "DateTime", -1, "'-1' is not a time that DateTime holds"),
    ("float", "DateTime64(3)", 1e18, "'1.0E18' is not a time"),
    ("int", "DateTime64(3)", 10413792000,
     "'10413792000' is not a time that DateTime64(3) holds (seconds since 1970, 1900-01-01T00:00:00Z to 2299-12-31"),
    ("int", "DateTime64(3)", 1730109605123,
     "'1730109605123' is not a time that DateTime64(3) holds (output fromUnixMilli(field) in a transform; seconds sin"),
    ("int", "DateTime", 1730109605123456, "'1730109605123456' is not a time that DateTime holds (output fromUnixMi"),
    ("int", "DateTime", 1730109605123456789,
     "'1730109605123456789' is not a time that DateTime holds (output fromUnixNano(field)"),
    ("string", "DateTime64(9)", "2263-01-01T00:00:00Z", "'2263-01-01T00:00:00Z' is not a time that DateTime64(9)"),
    # For nested values the reason names the position.
    ("array", "Array(Int8)", [1, 2, 300], "[2]: 300 is out of range -128..127"),
    ("array", "Array(Int8)", [1, 2.5], "[1]: expected a whole number, got 2.5"),
    ("array", "Array(Int8)", [None], "[0]: null, but Int8 is not Nullable"),
    ("array", "Array(Int8)", ["1"], "[0]: expected a whole number, got string"),
    ("array", "Array(Int64)", Json("[1e2147483647]"), "[0]: 1E+2147483647 is out of range"),
    ("array", "Array(Int64)", Json("[9223372036854775808]"), "[0]: 9223372036854775808 is out of range"),
    ("array", "Array(Float64)", Json("[1e999]"), "[0]: 1e999 is out of range of Float64"),
    ("array", "Array(String)", [5], "[0]: expected string, got number"),
    ("array", "Array(String)", Json('["\\ud800"]'), "[0]: holds half a surrogate pair"),
    ("array", "Array(Map(String, Int8))", [{}, {"a": 128}], "[1].a: 128 is out of range"),
    ("array", "Array(Map(String, String))", [{}, 5], "[1]: expected object, got number"),
    ("array", "Array(Map(String, String))", [None], "[0]: null, but Map(String, String) is not Nullable"),
    ("array", "Array(Array(Date))", [["2024-10-28"], ["x"]], "[1][0]: 'x' is not a date"),
    ("array", "Array(DateTime)", Json("[1e-2147483647]"), "[0]: '1E-2147483647' is not a time"),
    ("map", "Map(String, Int8)", {"a": None}, "a: null, but Int8 is not Nullable"),
    ("map", "Map(String, String)", Json('{"a":1,"a":2}'), "a: is given twice"),
    ("map", "Map(UInt8, String)", {"x": ""}, "x: 'x' is not a number"),
    ("map", "Map(UInt8, String)", {"256": ""}, "256: 256 is out of range 0..255"),
    ("map", "Map(String, String)", Json('{"a":1e999}'), "a: 1e999 does not fit into a 64-bit float"),
    ("map", "Map(String, Map(String, Array(Bool)))", {"a": {"b": [True, 1]}}, "a.b[1]: expected bool, got number"),
    ("map", "Map(String, Int8)", {"x" * 5000: 300}, "x" * 40 + "...: 300 is out of range"),
    ("array", "Tuple(Int8, String)", [1], "1 elements, but Tuple(Int8, String) has 2"),
    ("array", "Tuple(Int8, String)", [1, "x", 2], "more than the 2 elements"),
    ("array", "Tuple(Int8, String)", ["x", 1], "[0]: expected a whole number, got string"),
    ("map", "Tuple(a Int8, b String)", {"a": 1}, "b: is missing, but String is not Nullable"),
    ("map", "Tuple(a Int8, b String)", Json('{"a":1,"a":2,"b":""}'), "a: is given twice"),
    ("map", "Tuple(a Tuple(b Array(UInt8)))", {"a": {"b": [0, 256]}}, "a.b[1]: 256 is out of range"),
    ("map", "JSON", Json('{"a":{"b":1,"b":2}}'), "a.b: is given twice"),
    ("map", "JSON", Json('{"a":{"b":1},"a.b":2}'), "a.b: is given twice"),
    ("map", "JSON", Json('{"a":[{"b":18446744073709551616}]}'),
     "a[0].b: 18446744073709551616 does not fit into 64 bits"),
    ("map", "JSON", Json('{"a":1e999}'), "a: 1e999 does not fit into a 64-bit float"),
    ("map", "JSON", Json('{"a":[-1e-400]}'), "a[0]: -1e-400 is too small for a 64-bit float, which would make it 0"),
    ("map", "Map(String, String)", Json('{"a":1e-400}'), "a: 1e-400 is too small for a 64-bit float"),
    ("map", "JSON", Json('{"a":"\\ud800"}'), "a: holds half a surrogate pair"),
    ("map", "JSON(a.b UInt8)", Json('{"a":{"b":1.5}}'), "a.b: expected a whole number, got 1.5"),
    ("string", "JSON", "nope", "invalid JSON: 'nope' is no value (a text needs double quotes)"),
    ("string", "JSON", "{\0}\0", "invalid JSON: not in UTF-8"),
    ("string", "JSON", "[1]", "expected object, got array"),
    ("string", "JSON", '{"a":1} {}', "invalid JSON: something follows its end"),
    ("string", "JSON", "", "invalid JSON: a value is missing"),
    ("string", "JSON", '{"a":' * 2000, "invalid JSON: arrays and objects more than 1000 deep"),
    ("array", "Array(Int64)", Json("[" * 900 + "]" * 900), "[0]: expected a whole number, got array"),
    ("array", "Array(Int64)", Json("[1e99999999999999999999]"), "[0]: 1E+2147483647 is out of range"),
]  # fmt: skip

# GlassFlow's time layouts; where two fit, the first in its list counts.
LAYOUTS = {
    "2024-03-04T05:06:07Z": "2024-03-04T05:06:07.000000Z",
    "2024-03-04T05:06:07.123456789+02:00": "2024-03-04T03:06:07.123456Z",
    "2024-03-04T05:06:07": "2024-03-04T05:06:07.000000Z",
    "2024-03-04 05:06:07": "2024-03-04T05:06:07.000000Z",
    "2024-03-04 05:06:07.25": "2024-03-04T05:06:07.250000Z",
    "2024-03-04T05:06:07.123456": "2024-03-04T05:06:07.123456Z",
    "2024-03-04T5:06:07-00:30": "2024-03-04T05:36:07.000000Z",
    # Beyond GlassFlow's.
    "2024-03-04T05:06:07+0200": "2024-03-04T03:06:07.000000Z",
    "2024-03-04 05:06:07.25-0130": "2024-03-04T06:36:07.250000Z",
    "2024-03-04 05:06:07.123456+00": "2024-03-04T05:06:07.123456Z",
    "2024-03-04 05:06:07-02": "2024-03-04T07:06:07.000000Z",
    "2024-03-04 05:06:07 +0530": "2024-03-03T23:36:07.000000Z",
    "2024-03-04 05:06:07 UTC": "2024-03-04T05:06:07.000000Z",
    "2024-03-04T05:06:07.5 Z": "2024-03-04T05:06:07.500000Z",
    "2024-03-04T05:06Z": "2024-03-04T05:06:00.000000Z",
    "2024-03-04T05:06": "2024-03-04T05:06:00.000000Z",
    "2024-03-04 05:06+02:00": "2024-03-04T03:06:00.000000Z",
    "Mon, 04 Mar 2024 05:06:07 GMT": "2024-03-04T05:06:07.000000Z",
    "mon, 04 mar 2024 05:06:07.5 UTC": "2024-03-04T05:06:07.500000Z",
    "Mon, 04 Mar 2024 05:06:07 MST": "2024-03-04T05:06:07.000000Z",
    "Mon, 04 Mar 2024 05:06:07 GMT-8": "2024-03-04T13:06:07.000000Z",
    "Mon, 04 Mar 2024 05:06:07 -0700": "2024-03-04T12:06:07.000000Z",
    "04 Mar 24 05:06 UTC": "2024-03-04T05:06:00.000000Z",
    "04 Mar 24 05:06 +0130": "2024-03-04T03:36:00.000000Z",
    "04 Mar 69 05:06 UTC": "1969-03-04T05:06:00.000000Z",
    "04 Mar 68 05:06 UTC": "2068-03-04T05:06:00.000000Z",
    "Monday, 04-Mar-24 05:06:07 UTC": "2024-03-04T05:06:07.000000Z",
    "Mon Mar  4 05:06:07 2024": "2024-03-04T05:06:07.000000Z",
    "Mon Mar 14 05:06:07 2024": "2024-03-14T05:06:07.000000Z",
    "2024-03-04": "2024-03-04T00:00:00.000000Z",
    "03/04/2024": "2024-03-04T00:00:00.000000Z",
    "13/04/2024": "2024-04-13T00:00:00.000000Z",
    "04.03.2024": "2024-03-04T00:00:00.000000Z",
    "03.14.2024": "2024-03-14T00:00:00.000000Z",
    "2024/03/04": "2024-03-04T00:00:00.000000Z",
    "Mar 4, 2024": "2024-03-04T00:00:00.000000Z",
    "4 Mar 2024": "2024-03-04T00:00:00.000000Z",
    "14 mar 2024": "2024-03-14T00:00:00.000000Z",
}
NO_LAYOUTS = [
    "13/13/2024", "32.01.2024", "2024/13/01", "Mar 32, 2024", "2024-03-04T24:00:00Z", "2024-03-04T05:60:00Z",
    "2024-03-04T05:06:60Z", "2024-03-04T05:06:", "2024-03-04T05:06:07.", "2024-03-04T05:06.5Z", "2024-03-04T05Z",
    "2024-03-04T05:06:07UTC", "2024-03-04T05:06:07 EST", "2024-03-04T05:06:07 ", "2024-03-04T05:06:07  Z",
    "2024-03-04T05:06:07+2", "2024-03-04T05:06:07+020", "2024-03-04T05:06:07+02:0", "2024-03-04T05:06:07+02000",
    "2024-03-04T05:06:07+0260", "2024-03-04T05:06:07*0200", "2024-03-04T05:06:07 utc", "2024-03-04+0200",
    "2024-03-04T05:06:07+25:00", "2024-03-04t05:06:07z", "Mon, 4 Mar 2024 05:06:07 GMT", "4 March 2024", " 2024-03-04",
    "2024-3-4", "1.2.2024", "Mon, 04 Mar 2024 05:06:07 +9900", "\u0662\u0660\u0662\u0664-03-04", "x" * 100_000, "",
]  # fmt: skip


def mapped(spark: SparkSession, cases: list[tuple[str, str, Any]]) -> list[tuple[Any, Any]]:
    """Map all values in one job; record i fills only field and column c<i>.

    Returns in the order of the cases: the values of the row, None for a dead letter, and the error.
    """
    frame, table = frame_of(spark, cases)
    rows = frame.orderBy("i").select("row", "error").collect()
    return [(row.row and read_row(bytes(row.row), list(table.types.values())), row.error) for row in rows]


def frame_of(spark: SparkSession, cases: list[tuple[str, str, Any]]) -> tuple[DataFrame, TableColumns]:
    """Return the mapped records, and the table's columns; see `mapped`."""
    names = [f"c{i}" for i in range(len(cases))]
    fields = [SchemaField(name=n, type=case[0], required=False) for n, case in zip(names, cases, strict=True)]
    mapping = [Mapping(name=n, column_name=n, column_type=case[1]) for n, case in zip(names, cases, strict=True)]
    # Every column is Nullable here, because each record fills only one.
    table = TableColumns("d.t", mapping, {m.column_name: ColumnType("Nullable", (m.parsed_type,)) for m in mapping})
    values = [str(v) if isinstance(v, Json) else json.dumps(v) for _, _, v in cases]
    records = [(i, f'{{"c{i}":{value}}}'.encode()) for i, value in enumerate(values)]
    frame = spark.createDataFrame(records, f"i int, {RECORD}").coalesce(1)
    return map_columns(decode(frame, [json_decoder(fields)]), [table], field_scope(fields)), table


# The types that `read_values` reads.
COMPARED = {
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "IPv4", "Bool", "String", "UUID", "Enum8",
    "Enum16", "Date", "Date32", "DateTime", "DateTime64",
}  # fmt: skip


def parsed(text: str) -> Any:
    """Parse JSON with all digits of its numbers."""
    return json.loads(text, parse_float=Decimal)


def test_a_value_that_fits_arrives_converted(spark: SparkSession) -> None:
    rows = mapped(spark, [case[:3] for case in FITS])
    for i, (row, (kind, column, value, expected)) in enumerate(zip(rows, FITS, strict=True)):
        case = (kind, column, str(value)[:80])
        values, error = row
        assert error is None, case
        found = values[i]
        wanted = parsed(expected if isinstance(expected, Json) else json.dumps(expected))
        assert (found, type(found)) == (wanted, type(wanted)), case


def test_values_that_are_compared_can_be_read_from_a_row_and_others_are_skipped(spark: SparkSession) -> None:
    frame, table = frame_of(spark, [case[:3] for case in FITS])
    options = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "ignoreNullFields": "false"}
    values = read_values(F.col("row"), table)
    found = [row[0] for row in frame.orderBy("i").select(F.to_json(values, options)).collect()]
    compared = 0
    for i, (text, (_, column, _, expected)) in enumerate(zip(found, FITS, strict=True)):
        row = parsed(text)
        base = parse_column_type(column).base
        is_long_time = base.name == "DateTime64" and second_digits(base) > 6
        if base.name in COMPARED and not is_long_time:
            compared += 1
            wanted = expected.lower() if base.name == "UUID" else expected
            assert row[f"c{i}"] == wanted, column
        assert [name for name, value in row.items() if value is not None and name != f"c{i}"] == [], column
    assert compared > 20


def test_a_value_that_does_not_fit_is_refused_with_column_type_place_and_value(spark: SparkSession) -> None:
    rows = mapped(spark, [case[:3] for case in DOES_NOT_FIT])
    for i, (row, (kind, column, value, reason)) in enumerate(zip(rows, DOES_NOT_FIT, strict=True)):
        case = (kind, column, str(value)[:80])
        values, error = row
        assert values is None, case
        assert error.stage == "mapping", case
        assert error.reason.startswith(f"column 'c{i}' (Nullable({column})): {reason}"), case


def test_an_infinite_float_of_a_format_that_has_it_fits_both_types_of_floats(spark: SparkSession) -> None:
    fields = [SchemaField(name="x", type="float")]
    mapping = [Mapping(name="x", column_name=f"c{bits}", column_type=f"Float{bits}") for bits in (32, 64)]
    table = TableColumns("d.t", mapping, {m.column_name: m.parsed_type for m in mapping})
    decoded = decode(spark.createDataFrame([(b'{"x":1}',)], RECORD), [json_decoder(fields)])
    infinite = decoded.withColumn("fields", F.struct(F.lit(float("-inf")).alias("x")))
    [row] = map_columns(infinite, [table], field_scope(fields)).select("row", "error").collect()
    assert row.error is None
    assert read_row(bytes(row.row), list(table.types.values())) == [Decimal("-Infinity")] * 2


@pytest.mark.parametrize("column", ["Int32", "LowCardinality(String)", "Array(Nullable(Int8))", "JSON"])
def test_null_is_refused_where_the_column_takes_none(spark: SparkSession, column: str) -> None:
    kind = {"Int32": "int", "Array(Nullable(Int8))": "array", "JSON": "map"}.get(column, "string")
    fields = [SchemaField(name="x", type=kind, required=False)]
    mapping = [Mapping(name="x", column_name="c", column_type=column)]
    decoded = decode(spark.createDataFrame([(b"{}",)], RECORD), [json_decoder(fields)])
    found = map_columns(decoded, [TableColumns("d.t", mapping, {"c": parse_column_type(column)})], field_scope(fields))
    row = found.select("row", "error").collect()[0]
    assert row.row is None
    remedy = {
        "array": "no Array can be; output field ?? [] in a transform, with output_type array",
        "map": "make it so, or output field ?? {} in a transform",
    }.get(kind, "make it so, give the field a default, or output field ?? VALUE in a transform")
    assert row.error.reason == f"column 'c' ({column}): null, but the column is not Nullable ({remedy})"


def test_times_are_read_by_glassflows_layouts_the_first_that_fits(spark: SparkSession) -> None:
    cases = [("string", "DateTime64(6)", text) for text in (*LAYOUTS, *NO_LAYOUTS)]
    rows = mapped(spark, cases)
    for i, (row, (text, expected)) in enumerate(zip(rows, LAYOUTS.items(), strict=False)):
        values, error = row
        assert error is None, text
        assert values[i] == expected, text
    for (_, error), text in zip(rows[len(LAYOUTS) :], NO_LAYOUTS, strict=True):
        assert error is not None, text
        assert "is not a time that DateTime64(6) holds" in error.reason, text


def test_kafkas_own_columns_can_be_mapped(spark: SparkSession) -> None:
    fields = [SchemaField(name="x", type="int")]
    columns = {
        "_topic": "String", "_partition": "UInt32", "_offset": "UInt64", "_key": "Nullable(String)",
        "_timestamp": "DateTime64(3)", "_batch_time": "DateTime64(3)",
    }  # fmt: skip
    mapping = [Mapping(name=name, column_name=name, column_type=kind) for name, kind in columns.items()]
    time = datetime(2026, 1, 2, 3, 4, 5, 678901)
    records = spark.createDataFrame(
        [(b'{"x":1}', "t", 3, 2**40, None, 1_767_323_045_678, time)],
        f"{RECORD}, topic string, partition int, offset bigint, key binary, timestamp bigint, batch_time timestamp",
    )
    types = {name: parse_column_type(kind) for name, kind in columns.items()}
    row = (
        map_columns(decode(records, [json_decoder(fields)]), [TableColumns("d.t", mapping, types)], field_scope(fields))
        .select("row")
        .collect()[0]
    )
    values = read_row(bytes(row.row), list(types.values()))
    assert values == ["t", 3, 2**40, None, "2026-01-02T03:04:05.678000Z", "2026-01-02T03:04:05.678000Z"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"d":1e999}', "field 'd': 1e999 has more than 76 digits before or after the point"),
        (b'{"d":1e-77}', "field 'd': 1e-77 has more than 76 digits before or after the point"),
        (b'{"d":"1"}', "field 'd': expected decimal, got string"),
        (b'{"i":1.5}', "field 'i': expected int128 or int256, got 1.5"),
        (b'{"i":%d}' % 2**255, "does not fit into 256 bits"),
        (b'{"u":-1}', "field 'u': expected uint128 or uint256, got -1"),
        (b'{"u":1e2147483647}', "field 'u': 1e2147483647 does not fit into 256 bits"),
    ],
)
def test_numbers_beyond_64_bits_are_decoded_strictly(spark: SparkSession, record: bytes, reason: str) -> None:
    declared = {"d": "decimal", "i": "int256", "u": "uint128"}
    fields = [SchemaField(name=name, type=kind, required=False) for name, kind in declared.items()]
    found = decode(spark.createDataFrame([(record,)], RECORD), [json_decoder(fields)]).select("error").collect()[0]
    assert reason in found.error.reason


def test_a_number_beyond_64_bits_is_one_text_however_it_is_written(spark: SparkSession) -> None:
    fields = [SchemaField(name="d", type="decimal"), SchemaField(name="i", type="int256")]
    values = [b'{"d":1.50,"i":100}', b'{"d":15e-1,"i":1e2}', b'{"d":1.5,"i":100.0}']
    records = spark.createDataFrame([(value,) for value in values], RECORD)
    rows = decode(records, [json_decoder(fields)]).select("fields.*").collect()
    assert {(row.d, row.i) for row in rows} == {("1.5", "100")}
