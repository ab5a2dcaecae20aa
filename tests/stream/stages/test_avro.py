"""Avro: each type as each kind of field, damaged records, and random ones beside an independent encoder (fastavro)."""

import base64
import datetime as dt
import io
import json
import random
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import Row, SparkSession

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.source import SchemaField, Source, SourceSchema
from tests.stream.stages import schema_decoders
from tests.stream.stages.bad_bytes import NOT_UTF_8, UTF_8

KINDS = ("string", "int", "uint", "float", "bool", "array", "map", "decimal", "int128", "uint128", "any")


def record(*fields: tuple[str, Any], name: str = "Event") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def encoded(schema: dict[str, Any], event: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), event)
    return stream.getvalue()


def source_of(schema: dict[str, Any], fields: list[SchemaField]) -> Source:
    return Source(
        type="kafka", source_id="s", topic="t", connection_params=KafkaConnection(brokers=("b:1",)),
        schema_fields=tuple(fields), format="avro",
        schema=SourceSchema(file=json.dumps(schema), wire_format="none"),
    )  # fmt: skip


def decoded(
    spark: SparkSession, schema: dict[str, Any], fields: list[SchemaField], values: list[bytes | None]
) -> list[Row]:
    """Return a row of the fields and the reason for each value."""
    return schema_decoders.decoded(spark, source_of(schema, fields), values)


def optional(name: str, kind: str) -> SchemaField:
    return SchemaField(name=name, type=kind, required=False)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


NOON = dt.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=dt.UTC)
FIXED = {"type": "fixed", "name": "Two", "size": 2}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
POINT = record(("x", "int"), ("y", ["null", "double"]), name="Point")

# A type, a value as fastavro writes it, and what the fields of some kinds get; all other kinds refuse it.
ACCEPTED: list[tuple[Any, Any, dict[str, Any]]] = [
    ("string", 'a "quoted" \u20ac\n', {"string": 'a "quoted" \u20ac\n', "any": '"a \\"quoted\\" \u20ac\\u000a"'}),
    ("string", "", {"string": "", "any": '""'}),
    ("boolean", True, {"bool": True, "any": "true"}),
    ("int", -7, {"int": -7, "float": -7.0, "decimal": "-7", "int128": "-7", "any": "-7"}),
    ("int", 2**31 - 1, {
        "int": 2**31 - 1, "uint": Decimal(2**31 - 1), "float": 2.0**31 - 1, "decimal": "2147483647",
        "int128": "2147483647", "uint128": "2147483647", "any": "2147483647",
    }),
    ("long", -(2**63), {
        "int": -(2**63), "float": -(2.0**63), "decimal": str(-(2**63)), "int128": str(-(2**63)), "any": str(-(2**63)),
    }),
    # A float does not hold it.
    ("long", 2**53 + 1, {
        "int": 2**53 + 1, "uint": Decimal(2**53 + 1), "decimal": str(2**53 + 1), "int128": str(2**53 + 1),
        "uint128": str(2**53 + 1), "any": str(2**53 + 1),
    }),
    ("double", 1.5, {"float": 1.5, "decimal": "1.5", "any": "1.5"}),
    ("double", 3.0, {
        "float": 3.0, "int": 3, "uint": Decimal(3), "decimal": "3", "int128": "3", "uint128": "3", "any": "3.0",
    }),
    ("double", float("inf"), {"float": float("inf")}),
    ("float", 0.1, {"float": struct.unpack("f", struct.pack("f", 0.1))[0], "decimal": "0.1", "any": "0.1"}),
    ("bytes", b"\x00\xff", {"string": "AP8=", "any": '"AP8="'}),
    (FIXED, b"\x00\xff", {"string": "AP8=", "any": '"AP8="'}),
    (COLOUR, "BLUE", {"string": "BLUE", "any": '"BLUE"'}),
    ({"type": "array", "items": ["null", "long"]}, [1, None, -2], {"array": "[1,null,-2]", "any": "[1,null,-2]"}),
    ({"type": "array", "items": "string"}, [], {"array": "[]", "any": "[]"}),
    ({"type": "map", "values": "boolean"}, {'a"b': True}, {"map": '{"a\\"b":true}', "any": '{"a\\"b":true}'}),
    (POINT, {"x": 1, "y": None}, {"map": '{"x":1,"y":null}', "any": '{"x":1,"y":null}'}),
    (
        {"type": "array", "items": {"type": "map", "values": POINT}}, [{"p": {"x": 1, "y": 0.5}}],
        dict.fromkeys(("array", "any"), '[{"p":{"x":1,"y":0.5}}]'),
    ),
    (logical("bytes", "decimal", precision=9, scale=2), Decimal("-12.50"), {
        "string": "-12.50", "float": -12.5, "decimal": "-12.5", "any": "-12.50",
    }),
    (logical("bytes", "decimal", precision=9, scale=2), Decimal("12.00"), {
        "string": "12.00", "float": 12.0, "decimal": "12", "int": 12, "uint": Decimal(12), "int128": "12",
        "uint128": "12", "any": "12.00",
    }),
    ({"type": "fixed", "name": "D", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 0},
     Decimal(2**64 - 1), {
        "string": str(2**64 - 1), "decimal": str(2**64 - 1), "uint": Decimal(2**64 - 1),
        "int128": str(2**64 - 1), "uint128": str(2**64 - 1), "any": str(2**64 - 1),
    }),
    (logical("string", "uuid"), uuid.UUID(int=7), {
        "string": str(uuid.UUID(int=7)), "any": f'"{uuid.UUID(int=7)}"',
    }),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, uuid.UUID(int=7).bytes, {
        "string": str(uuid.UUID(int=7)), "any": f'"{uuid.UUID(int=7)}"',
    }),
    (logical("int", "date"), dt.date(1969, 12, 31), {
        "string": "1969-12-31", "int": -1, "float": -1.0, "decimal": "-1", "int128": "-1", "any": '"1969-12-31"',
    }),
    (logical("int", "time-millis"), dt.time(1, 2, 3, 4000), {
        "string": "01:02:03.004", "any": '"01:02:03.004"', "int": 3723004, "uint": Decimal(3723004),
        "float": 3723004.0, "decimal": "3723004", "int128": "3723004", "uint128": "3723004",
    }),
    (logical("long", "timestamp-millis"), NOON, {
        "string": "2026-01-31T12:00:00.123Z", "any": '"2026-01-31T12:00:00.123Z"', "int": 1769860800123,
        "uint": Decimal(1769860800123), "float": 1769860800123.0, "decimal": "1769860800123",
        "int128": "1769860800123", "uint128": "1769860800123",
    }),
    (logical("long", "local-timestamp-micros"), NOON.replace(tzinfo=None), {
        "string": "2026-01-31T12:00:00.123456", "any": '"2026-01-31T12:00:00.123456"', "int": 1769860800123456,
        "uint": Decimal(1769860800123456), "float": 1769860800123456.0, "decimal": "1769860800123456",
        "int128": "1769860800123456", "uint128": "1769860800123456",
    }),
    ({"type": "fixed", "name": "Duration", "size": 12, "logicalType": "duration"}, struct.pack("<III", 1, 2, 3004), {
        "string": "P1M2DT3.004S", "any": '"P1M2DT3.004S"',
    }),
    (["null", "string", "long"], 5, {
        "int": 5, "uint": Decimal(5), "float": 5.0, "decimal": "5", "int128": "5", "uint128": "5", "any": "5",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "expected"), ACCEPTED, ids=[str(case[0])[:50] for case in ACCEPTED])
def test_each_type_as_each_kind_of_field(spark: SparkSession, kind: Any, value: Any, expected: dict[str, Any]) -> None:
    schema = record(("v", kind))
    found = {
        wanted: decoded(spark, schema, [SchemaField(name="v", type=wanted)], [encoded(schema, {"v": value})])[0]
        for wanted in KINDS
    }
    assert {wanted: row.v for wanted, row in found.items() if row.reason is None} == expected
    refused = [row.reason for row in found.values() if row.reason is not None]
    assert all(reason.startswith("field 'v': ") for reason in refused), refused


def test_nested_names_are_paths_into_records_and_maps(spark: SparkSession) -> None:
    inner = record(("id", "string"), ("tags", {"type": "map", "values": ["null", "string"]}), name="Inner")
    schema = record(("before", "long"), ("o", ["null", inner]), ("after", "bytes"))
    fields = [optional("o.id", "string"), optional("o", "map"), optional("o.tags.colour", "string")]
    event = {"before": 1, "o": {"id": "x", "tags": {"size": None, "colour": "red"}}, "after": b"z"}
    rows = decoded(spark, schema, fields, [encoded(schema, event), encoded(schema, {**event, "o": None})])
    as_json = '{"id":"x","tags":{"size":null,"colour":"red"}}'
    assert [tuple(row) for row in rows] == [("x", as_json, "red", None), (None, None, None, None)]


def test_a_record_within_itself_is_read_and_its_depth_is_bounded(spark: SparkSession) -> None:
    schema = record(("next", ["null", "Event"]))
    field = [optional("next", "map")]

    def chain(length: int) -> bytes:
        return b"\2" * length + b"\0"

    first, deep, too_deep = decoded(spark, schema, field, [chain(1), chain(90), chain(1_000_000)])
    assert first.next == '{"next":null}'
    assert deep.next.count("next") == 90
    assert too_deep.reason == "invalid Avro: arrays, maps and records more than 100 deep"


def test_missing_and_null_fields(spark: SparkSession) -> None:
    schema = record(("a", ["null", "string"]))
    null = encoded(schema, {"a": None})
    (needed,) = decoded(spark, schema, [SchemaField(name="a", type="string")], [null])
    (missing,) = decoded(spark, schema, [SchemaField(name="b", type="string")], [null])
    (absent,) = decoded(spark, schema, [optional("a", "string"), optional("b", "string")], [null])
    assert (needed.reason, missing.reason) == ("field 'a' is null", "field 'b' is missing")
    assert tuple(absent) == (None, None, None)


TEXT = record(("a", "string"), ("n", {"type": "array", "items": "null"}))
DAMAGED = {
    b"": "it ends after 0 bytes",
    None: "the record has no value",
    b"\x04a": "2 bytes are announced and 1 are left",
    b"\x01": "-1 bytes are announced",
    b"\x04\xff\xfe\x00": "a text that is not UTF-8",
    b"\xff" * 10: "a number of more than ten bytes",
    # A length of 2^62 bytes, and 2^61 nulls, for which nobody takes memory.
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f": "bytes are announced",
    b"\x02a\xfe\xff\xff\xff\xff\xff\xff\xff\x7f": "items are announced",
    b"\x02a\x00more": "4 bytes follow the record",
}


def test_damaged_records_are_dead_letters(spark: SparkSession) -> None:
    rows = decoded(spark, TEXT, [SchemaField(name="a", type="string")], list(DAMAGED))
    for row, expected in zip(rows, DAMAGED.values(), strict=True):
        assert expected in str(row.reason)
        assert row.a is None


def test_texts_that_are_not_utf_8_are_dead_letters(spark: SparkSession) -> None:
    values = [bytes([2 * len(text)]) + text + b"\0" for text in [*NOT_UTF_8, UTF_8.encode()]]
    *refused, good = decoded(spark, TEXT, [SchemaField(name="a", type="string")], values)
    assert (good.a, good.reason) == (UTF_8, None)
    assert {row.reason for row in refused} == {"invalid Avro: a text that is not UTF-8, at byte 1"}


def test_what_has_no_form_in_json_is_a_dead_letter(spark: SparkSession) -> None:
    schema = record(("a", {"type": "array", "items": "double"}))
    (row,) = decoded(
        spark, schema, [SchemaField(name="a", type="array")], [encoded(schema, {"a": [1.0, float("nan")]})]
    )
    assert row.reason == "field 'a': NaN is no number that JSON or a decimal can hold"


def test_undeclared_fields_are_skipped_whatever_they_are(spark: SparkSession) -> None:
    kinds = [kind for kind, _, _ in ACCEPTED if not isinstance(kind, dict) or "name" not in kind]
    values = [value for kind, value, _ in ACCEPTED if not isinstance(kind, dict) or "name" not in kind]
    schema = record(*((f"f{index}", kind) for index, kind in enumerate(kinds)), ("last", "string"))
    event = {f"f{index}": value for index, value in enumerate(values)} | {"last": "here"}
    (row,) = decoded(spark, schema, [SchemaField(name="last", type="string")], [encoded(schema, event)])
    assert tuple(row) == ("here", None)


def test_damaged_records_never_end_a_task(spark: SparkSession) -> None:
    """Any change of any byte gives a row or a reason."""
    draw = random.Random(5)
    kinds = [kind for kind, _, _ in ACCEPTED if not isinstance(kind, dict) or "name" not in kind]
    values = [value for kind, value, _ in ACCEPTED if not isinstance(kind, dict) or "name" not in kind]
    schema = record(*((f"f{index}", kind) for index, kind in enumerate(kinds)))
    good = encoded(schema, {f"f{index}": value for index, value in enumerate(values)})
    damaged = []
    for _ in range(2000):
        record_bytes = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            record_bytes[draw.randrange(len(record_bytes))] = draw.randrange(256)
        damaged.append(bytes(record_bytes[: draw.choice([len(record_bytes), draw.randrange(len(record_bytes))])]))
    rows = decoded(spark, schema, [optional(f"f{index}", "any") for index in range(len(kinds))], damaged)
    assert len(rows) == len(damaged)
    assert {row.reason is None for row in rows} == {True, False}


SCALARS: list[Any] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


class Draw:
    """Random schemas and values of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def schema(self, depth: int = 0) -> Any:
        pick = self.random.randrange(13 if depth < 3 else 8)
        if pick < 8:
            return SCALARS[pick]
        self.names += 1
        if pick == 8:
            return {"type": "array", "items": self.schema(depth + 1)}
        if pick == 9:
            return {"type": "map", "values": self.schema(depth + 1)}
        if pick == 10:
            return {"type": "enum", "name": f"E{self.names}", "symbols": ["A", "B", "C"]}
        if pick == 11:
            # Of a union's branches each may stand once only.
            return ["null", self.random.choice(["string", "long", "boolean"])]
        return record(
            *((f"f{index}", self.schema(depth + 1)) for index in range(self.random.randint(0, 3))),
            name=f"R{self.names}",
        )

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self.value(self.random.choice(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        return self.nested(kind, schema) if isinstance(schema, dict) else self.scalar(kind)

    def nested(self, kind: str, schema: dict[str, Any]) -> Any:
        draw = self.random
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(draw.randrange(4))]
        if kind == "map":
            return {f"k{index}": self.value(schema["values"]) for index in range(draw.randrange(4))}
        if kind == "enum":
            return draw.choice(schema["symbols"])
        return {field["name"]: self.value(field["type"]) for field in schema["fields"]}

    def scalar(self, kind: str) -> Any:
        draw = self.random
        makers: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: draw.random() < 0.5,
            "int": lambda: draw.randint(-(2**31), 2**31 - 1),
            "long": lambda: draw.randint(-(2**63), 2**63 - 1) >> draw.randrange(64),
            "bytes": lambda: draw.randbytes(draw.randrange(5)),
            "string": lambda: "".join(draw.choice('ab"\\\n\u20ac\U0001f600') for _ in range(draw.randrange(6))),
        }
        return makers.get(kind, lambda: draw.randint(-1000, 1000) / 8)()


def as_json(value: Any) -> Any:
    """Return a value as it stands in JSON."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [as_json(item) for item in value]
        case dict():
            return {name: as_json(item) for name, item in value.items()}
    return value


def test_random_records_equal_those_of_an_independent_encoder(spark: SparkSession) -> None:
    for seed in range(25):
        draw = Draw(seed)
        schema = record(*((f"f{index}", draw.schema()) for index in range(5)))
        events = [{f"f{i}": draw.value(f["type"]) for i, f in enumerate(schema["fields"])} for _ in range(40)]
        rows = decoded(
            spark, schema, [optional(f"f{index}", "any") for index in range(5)], [encoded(schema, e) for e in events]
        )
        for row, event in zip(rows, events, strict=True):
            assert row.reason is None
            texts = {name: row[name] for name in event}
            assert {name: None if text is None else json.loads(text) for name, text in texts.items()} == as_json(event)


def test_a_logical_type_on_a_wrong_type_counts_as_none(spark: SparkSession) -> None:
    schema = record(("a", logical("long", "date")), ("b", logical("int", "timestamp-millis")))
    fields = [optional("a", "any"), optional("b", "any")]
    (row,) = decoded(spark, schema, fields, [encoded(record(("a", "long"), ("b", "int")), {"a": 2**62, "b": 5})])
    assert tuple(row) == (str(2**62), "5", None)


def test_what_costs_more_than_its_bytes_is_a_dead_letter(spark: SparkSession) -> None:
    nulls = record(("a", {"type": "array", "items": "null"}))
    # 199 blocks of 100,000 nulls each, in 600 bytes.
    many = b"\xc0\x9a\x0c" * 199 + b"\0"
    for declared in ([optional("a", "array")], [optional("b", "string")]):
        (row,) = decoded(spark, nulls, declared, [many])
        assert row.reason.startswith("invalid Avro: more than 100000 items of no bytes")
    inner: Any = record(name="R0")
    for depth in range(1, 40):
        inner = record(("a", inner), ("b", f"R{depth - 1}"), name=f"R{depth}")
    (row,) = decoded(spark, record(("x", inner)), [optional("y", "string")], [b""])
    assert row.reason.startswith("invalid Avro: more than 100000 items of no bytes")


def test_a_decimal_beyond_all_columns_is_a_dead_letter(spark: SparkSession) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 2_000_000_000, "scale": 2_000_000_000}
    (row,) = decoded(spark, record(("a", kind)), [optional("a", "string")], [b"\2\1"])
    assert row.reason == "field 'a': a decimal with the scale 2000000000"


def test_a_date_of_more_than_32_bits_is_a_dead_letter(spark: SparkSession) -> None:
    schema = record(("a", logical("int", "date")))
    (row,) = decoded(spark, schema, [optional("a", "string")], [b"\xfe" + b"\xff" * 8 + b"\1"])
    assert row.reason == "invalid Avro: 9223372036854775807 for an int, before byte 10"
