"""Protobuf: each type as each kind of field, damaged records, and random messages beside google.protobuf."""

import base64
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from grpc_tools import protoc
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.source import SchemaField, Source, SourceSchema
from tests.stream.stages.bad_bytes import NOT_UTF_8, UTF_8
from tests.stream.stages.schema_decoders import decoded

KINDS = ("string", "int", "uint", "float", "bool", "array", "map", "decimal", "int128", "uint128", "any")
WELL_KNOWN = Path(protoc.__file__).parent / "_proto"

PROTO3 = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/field_mask.proto";

message Event {
  double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6; sint32 s32 = 7;
  sint64 s64 = 8; fixed32 x32 = 9; fixed64 x64 = 10; sfixed32 y32 = 11; sfixed64 y64 = 12; bool b = 13;
  string s = 14; bytes raw = 15; Colour colour = 16;
  optional int32 maybe = 17;
  oneof either { string left = 18; int64 right = 19; Item both = 20; }
  Item item = 21;
  repeated int32 numbers = 22; repeated string words = 23; repeated Item items = 24;
  repeated int32 unpacked = 25 [packed = false];
  map<string, int64> counts = 26; map<int32, Item> by_number = 27; map<string, Colour> colours = 28;
  google.protobuf.Timestamp at = 30; google.protobuf.Duration took = 31; google.protobuf.Int64Value wrapped = 32;
  google.protobuf.StringValue wrapped_text = 33; google.protobuf.Struct free = 34; google.protobuf.Value value = 35;
  google.protobuf.ListValue list = 36; google.protobuf.FieldMask mask = 37;
  Event next = 38;
  message Item { string id = 1; optional int32 n = 2; Colour colour = 3; }
  enum Colour { NONE = 0; RED = 1; BLUE = 2; }
}
message Other { string name = 1; message Inner { int32 n = 1; } }
"""
PROTO2 = """
syntax = "proto2";
message Old {
  required string id = 1;
  optional int32 n = 2 [default = 7];
  optional string text = 3;
  repeated int32 numbers = 4;
  optional group Part = 5 { optional int32 inner = 1; }
  optional Kind kind = 6 [default = B];
  enum Kind { A = 1; B = 2; }
}
"""


def compiled(text: str, folder: Path) -> Callable[[str], type[Message]]:
    """Compile a .proto file by Google's compiler; return a function from a message's name to its class."""
    (folder / "schema.proto").write_text(text)
    result = folder / "schema.pb"
    arguments = ["protoc", f"-I{folder}", f"-I{WELL_KNOWN}", "--include_imports", f"--descriptor_set_out={result}"]
    assert protoc.main([*arguments, "schema.proto"]) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(result.read_bytes()).file:
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.fixture(scope="module")
def event_class(tmp_path_factory: pytest.TempPathFactory) -> type[Message]:
    return compiled(PROTO3, tmp_path_factory.mktemp("proto3"))("shop.Event")


def source_of(text: str, fields: list[SchemaField], message_type: str | None = None, **schema: Any) -> Source:
    return Source(
        type="kafka", source_id="s", topic="t", connection_params=KafkaConnection(brokers=("b:1",)),
        schema_fields=tuple(fields), format="protobuf",
        schema=SourceSchema(file=text, message_type=message_type, **{"wire_format": "none", **schema}),
    )  # fmt: skip


def varint(number: int) -> bytes:
    groups = b""
    while number > 127:
        groups += bytes([number & 127 | 128])
        number >>= 7
    return groups + bytes([number])


def optional(name: str, kind: str) -> SchemaField:
    return SchemaField(name=name, type=kind, required=False)


def whole(number: int) -> dict[str, Any]:
    """Return what fields of each kind get of a whole number from 0 on."""
    text = str(number)
    real = {"float": float(number)} if float(number) == number else {}
    return {
        "int": number, "uint": Decimal(number), **real, "decimal": text, "int128": text, "uint128": text, "any": text,
    }  # fmt: skip


def negative(number: int) -> dict[str, Any]:
    return {kind: value for kind, value in whole(number).items() if not kind.startswith("uint")}


# The message as JSON, the field, and what the fields of some kinds get; all other kinds refuse it.
ACCEPTED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"d": 1.5}, "d", {"float": 1.5, "decimal": "1.5", "any": "1.5"}),
    ({"d": "Infinity"}, "d", {"float": float("inf")}),
    ({"f": 0.5}, "f", {"float": 0.5, "decimal": "0.5", "any": "0.5"}),
    ({"i32": -5}, "i32", negative(-5)),
    ({"i64": 2**62}, "i64", whole(2**62)),
    ({"u32": 2**32 - 1}, "u32", whole(2**32 - 1)),
    ({"u64": 2**64 - 1}, "u64", {k: v for k, v in whole(2**64 - 1).items() if k != "int"}),
    ({"s32": -(2**31)}, "s32", negative(-(2**31))),
    ({"s64": -(2**63)}, "s64", negative(-(2**63))),
    ({"x32": 2**32 - 1}, "x32", whole(2**32 - 1)),
    ({"x64": 2**63}, "x64", {k: v for k, v in whole(2**63).items() if k != "int"}),
    ({"y32": -1}, "y32", negative(-1)),
    ({"y64": -1}, "y64", negative(-1)),
    ({"b": True}, "b", {"bool": True, "any": "true"}),
    ({"s": 'a "quoted" \u20ac'}, "s", {"string": 'a "quoted" \u20ac', "any": '"a \\"quoted\\" \u20ac"'}),
    ({"raw": "AP8="}, "raw", {"string": "AP8=", "any": '"AP8="'}),
    ({"colour": "BLUE"}, "colour", {**whole(2), "string": "BLUE", "any": '"BLUE"'}),
    # Without presence a field that is missing has its default.
    ({}, "i32", whole(0)),
    ({}, "s", {"string": "", "any": '""'}),
    ({}, "b", {"bool": False, "any": "false"}),
    ({}, "colour", {**whole(0), "string": "NONE", "any": '"NONE"'}),
    ({}, "numbers", {"array": "[]", "any": "[]"}),
    ({}, "counts", {"map": "{}", "any": "{}"}),
    ({"maybe": 0}, "maybe", whole(0)),
    ({"right": 5}, "right", whole(5)),
    ({"item": {"id": "x"}}, "item", dict.fromkeys(("map", "any"), '{"id":"x","colour":"NONE"}')),
    ({"item": {"n": 0}}, "item", dict.fromkeys(("map", "any"), '{"id":"","n":0,"colour":"NONE"}')),
    ({"numbers": [1, -2]}, "numbers", {"array": "[1,-2]", "any": "[1,-2]"}),
    ({"unpacked": [1, -2]}, "unpacked", {"array": "[1,-2]", "any": "[1,-2]"}),
    ({"words": ["a", ""]}, "words", {"array": '["a",""]', "any": '["a",""]'}),
    ({"items": [{"id": "x"}]}, "items", dict.fromkeys(("array", "any"), '[{"id":"x","colour":"NONE"}]')),
    ({"counts": {"a": 2**60}}, "counts", dict.fromkeys(("map", "any"), f'{{"a":{2**60}}}')),
    (
        {"by_number": {"7": {"id": "x"}}}, "by_number",
        dict.fromkeys(("map", "any"), '{"7":{"id":"x","colour":"NONE"}}'),
    ),
    ({"colours": {"a": "RED"}}, "colours", dict.fromkeys(("map", "any"), '{"a":"RED"}')),
    (
        {"at": "2026-01-31T12:00:00.5Z"}, "at",
        {
            "string": "2026-01-31T12:00:00.500Z", "any": '"2026-01-31T12:00:00.500Z"', "float": 1769860800.5,
            "decimal": "1769860800.5",
        },
    ),
    ({"took": "-3.004s"}, "took", {"string": "-3.004s", "any": '"-3.004s"', "float": -3.004, "decimal": "-3.004"}),
    ({"wrapped": 0}, "wrapped", whole(0)),
    ({"wrapped_text": "x"}, "wrapped_text", {"string": "x", "any": '"x"'}),
    (
        {"free": {"a": [1, None, "x", {"b": True}]}}, "free",
        dict.fromkeys(("map", "any"), '{"a":[1.0,null,"x",{"b":true}]}'),
    ),
    ({"value": "text"}, "value", {"string": "text", "any": '"text"'}),
    ({"list": [1, "a"]}, "list", dict.fromkeys(("array", "any"), '[1.0,"a"]')),
    ({"mask": "a.b,c"}, "mask", {"string": "a.b,c", "any": '"a.b,c"'}),
]  # fmt: skip


@pytest.mark.parametrize(("event", "name", "expected"), ACCEPTED, ids=[f"{c[1]} {str(c[0])[:40]}" for c in ACCEPTED])
def test_each_type_as_each_kind_of_field(
    spark: SparkSession, event_class: type[Message], event: dict[str, Any], name: str, expected: dict[str, Any]
) -> None:
    value = json_format.ParseDict(event, event_class()).SerializeToString()
    found = {
        wanted: decoded(spark, source_of(PROTO3, [SchemaField(name=name, type=wanted)], "Event"), [value])[0]
        for wanted in KINDS
    }
    assert {wanted: row[name] for wanted, row in found.items() if row.reason is None} == expected
    refused = [row.reason for row in found.values() if row.reason is not None]
    assert all(reason.startswith(f"field '{name}': ") for reason in refused), refused


def test_what_is_absent_and_has_presence_is_null(spark: SparkSession, event_class: type[Message]) -> None:
    names = ("maybe", "left", "item", "at", "wrapped", "value", "item.id", "counts.x")
    source = source_of(PROTO3, [optional(name, "any") for name in names], "shop.Event")
    empty = event_class()
    with_null: Any = event_class()
    with_null.value.null_value = 0
    for row in decoded(spark, source, [empty.SerializeToString(), with_null.SerializeToString()]):
        assert tuple(row) == (None,) * (len(names) + 1)
    (needed,) = decoded(spark, source_of(PROTO3, [SchemaField(name="maybe", type="int")], "Event"), [b""])
    assert needed.reason == "field 'maybe' is missing or null"


def test_nested_names_are_paths_into_messages_and_maps(spark: SparkSession, event_class: type[Message]) -> None:
    event = {"item": {"id": "x", "n": 3}, "counts": {"a": 1, "b": 2}, "by_number": {"7": {"id": "y"}}, "s": "z"}
    value = json_format.ParseDict(event, event_class()).SerializeToString()
    fields = [
        optional("item.id", "string"), optional("item.n", "int"), optional("item", "map"), optional("counts.b", "int"),
        optional("by_number.7.id", "string"),
    ]  # fmt: skip
    (row,) = decoded(spark, source_of(PROTO3, fields, "Event"), [value])
    assert tuple(row) == ("x", 3, '{"id":"x","n":3,"colour":"NONE"}', 2, "y", None)


def test_of_a_oneof_the_last_one_counts_and_messages_are_merged(
    spark: SparkSession, event_class: type[Message]
) -> None:
    first = json_format.ParseDict({"left": "a", "item": {"id": "x"}, "numbers": [1], "i32": 1}, event_class())
    second = json_format.ParseDict({"right": 2, "item": {"n": 5}, "numbers": [2], "i32": 2}, event_class())
    fields = [optional(name, "any") for name in ("left", "right", "item", "numbers", "i32")]
    both = first.SerializeToString() + second.SerializeToString()
    (row,) = decoded(spark, source_of(PROTO3, fields, "Event"), [both])
    assert tuple(row) == (None, "2", '{"id":"x","n":5,"colour":"NONE"}', "[1,2]", "2", None)


def test_proto2_has_defaults_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    old = compiled(PROTO2, tmp_path)("Old")
    message = json_format.ParseDict({"id": "x", "numbers": [1, 2], "part": {"inner": 3}}, old())
    fields = [optional(name, "any") for name in ("id", "n", "text", "numbers", "kind")]
    (row,) = decoded(spark, source_of(PROTO2, fields), [message.SerializeToString()])
    assert tuple(row) == ('"x"', "7", None, "[1,2]", '"B"', None)


DEFAULTS = r"""
syntax = "proto2";
message Odd {
  optional string s = 1 [default = "a \"quoted\" \\ line\nand more"];
  optional bytes raw = 2 [default = "\001\377"];
  optional double d = 3 [default = inf];
  optional int32 i = 4 [default = -7];
  optional bool b = 5 [default = true];
}
"""
LARGE_DEFAULTS = """
syntax = "proto2";
message Large {
  optional double d = 1 [default = 1e+30];
  optional float f = 2 [default = -2.5E+10];
  optional double n = 3 [default = -1e-7];
}
"""
GROUPS = """
syntax = "proto2";
package old;
message Search {
  optional string id = 1;
  optional group Part = 2 { optional int32 inner = 1; repeated string words = 3; }
  repeated group Hit = 4 { required string url = 5; optional Part also = 6; }
  oneof either { string left = 7; group Right = 8 { optional int64 n = 1; } }
  optional Part written = 9;
}
"""


def test_groups_are_read_as_messages(spark: SparkSession, tmp_path: Path) -> None:
    """A group is a message between two tags, and its field has the group's name in lower case."""
    search = compiled(GROUPS, tmp_path)("old.Search")
    full = {
        "id": "x", "part": {"inner": 3, "words": ["a", "b"]}, "hit": [{"url": "u", "also": {"inner": 1}}, {"url": "v"}],
        "right": {"n": "5"}, "written": {"inner": 7},
    }  # fmt: skip
    names = {
        "id": "string", "part": "map", "part.inner": "int", "hit": "array", "left": "string", "right.n": "int",
        "written.inner": "int",
    }  # fmt: skip
    source = source_of(GROUPS, [optional(name, kind) for name, kind in names.items()])
    values = [json_format.ParseDict(event, search()).SerializeToString() for event in (full, {"id": "y"})]
    # Two groups of one field are one message, and of a oneof the last one counts.
    merged = values[0] + json_format.ParseDict({"part": {"inner": 4}, "left": "z"}, search()).SerializeToString()
    first, empty, later = decoded(spark, source, [*values, merged])
    assert tuple(first) == (
        "x", '{"inner":3,"words":["a","b"]}', 3, '[{"url":"u","also":{"inner":1,"words":[]}},{"url":"v"}]', None, 5, 7,
        None,
    )  # fmt: skip
    assert tuple(empty) == ("y", None, None, "[]", None, None, None, None)
    assert (later.part, later.left, later["right.n"]) == ('{"inner":4,"words":["a","b"]}', "z", None)


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"\x13\x08\x03", "it or a message in it ends too early, at byte 3"),
        (b"\x13\x08\x03\x24", "wire type 4, before byte 4"),
        (b"\x14", "'part' has wire type 4, and 3 in the schema"),
        (b"\x12\x02\x08\x03", "'part' has wire type 2, and 3 in the schema"),
        (b"\x4b\x4c", "'written' has wire type 3, and 2 in the schema"),
        (b"\x13\x33\x14\x34", "a group ends as another one, before byte 3"),
    ],
)
def test_damaged_groups_are_dead_letters(spark: SparkSession, damaged: bytes, reason: str) -> None:
    source = source_of(GROUPS, [optional("part", "any"), optional("written", "any")])
    (row,) = decoded(spark, source, [damaged])
    assert reason in str(row.reason)


def test_the_depth_of_groups_is_bounded(spark: SparkSession) -> None:
    text = """
    syntax = "proto2";
    message A { optional group Part = 1 { optional A next = 2; } }
    """
    value = b""
    for _ in range(60):
        inner = b"\x0b" + (b"\x12" + varint(len(value)) + value if value else b"") + b"\x0c"
        value = inner
    (row,) = decoded(spark, source_of(text, [optional("part", "any")]), [value])
    assert row.reason == "invalid Protobuf: messages more than 100 deep"


def test_a_compiled_schema_is_read_like_its_text(spark: SparkSession, tmp_path: Path) -> None:
    """Confluent's serializers register it in base64, and some registries return that."""
    of_groups = {"id": "x", "part": {"inner": 3}, "hit": [{"url": "u"}], "right": {"n": "5"}, "written": {"inner": 7}}
    cases: list[tuple[str, str, str, list[dict[str, Any]]]] = [
        (PROTO3, "shop.Event", "Event", [event for event, _, _ in ACCEPTED]),
        (PROTO2, "Old", "Old", [{"id": "x"}, {"id": "y", "n": 1, "part": {"inner": 1}, "kind": "A"}]),
        (GROUPS, "old.Search", "Search", [of_groups, {"left": "z"}]),
        (DEFAULTS, "Odd", "Odd", [{}, {"i": 5}]),
        (LARGE_DEFAULTS, "Large", "Large", [{}]),
    ]
    for text, full_name, name, events in cases:
        message = compiled(text, tmp_path)(full_name)
        in_base64 = base64.b64encode(message.DESCRIPTOR.file.serialized_pb).decode()
        values = [json_format.ParseDict(event, message()).SerializeToString() for event in events]
        fields = [optional(field.name, "any") for field in message.DESCRIPTOR.fields]
        as_text, as_compiled = (decoded(spark, source_of(schema, fields, name), values) for schema in (text, in_base64))
        assert as_compiled == as_text
        # JSON has no infinite numbers.
        assert [row.reason for row in as_text if row.reason and "Infinity" not in row.reason] == []


@pytest.mark.parametrize(("entry", "expected"), [(b"\x0a\1k", '{"k":0}'), (b"\x10\5", '{"":5}'), (b"", '{"":0}')])
def test_an_entry_of_a_map_may_lack_its_key_or_its_value(
    spark: SparkSession, tmp_path: Path, entry: bytes, expected: str
) -> None:
    """As serializers write it that leave out what is the default."""
    text = 'syntax = "proto2"; message Maps { map<string, int32> m = 1; }'
    in_base64 = base64.b64encode(compiled(text, tmp_path)("Maps").DESCRIPTOR.file.serialized_pb).decode()
    value = b"\x0a" + varint(len(entry)) + entry
    for schema in (text, in_base64):
        (row,) = decoded(spark, source_of(schema, [optional("m", "map")]), [value])
        assert tuple(row) == (expected, None)


def test_a_compiled_schema_that_is_broken_or_of_an_edition_is_named(spark: SparkSession) -> None:
    broken, edition = (base64.b64encode(value).decode() for value in (b"\x0a\x7f", b"\x62\x08editions"))
    found = [decoded(spark, source_of(schema, [optional("id", "any")]), [b""]) for schema in (broken, edition)]
    reasons = [row.reason for (row,) in found]
    assert "ends too early" in reasons[0] or "announced" in reasons[0]
    assert "is a compiled schema of the syntax 'editions', which is not supported" in reasons[1]


def test_unknown_fields_and_enum_values(spark: SparkSession, tmp_path: Path) -> None:
    newer = PROTO3.replace("BLUE = 2;", "BLUE = 2; GREEN = 3;").replace(
        "string s = 14;", "string s = 14; string t = 99;"
    )
    message = json_format.ParseDict(
        {"s": "x", "t": "new", "colour": "GREEN"}, compiled(newer, tmp_path)("shop.Event")()
    )
    fields = [optional("s", "string"), optional("colour", "any")]
    (row,) = decoded(spark, source_of(PROTO3, fields, "Event"), [message.SerializeToString()])
    assert tuple(row) == ("x", "3", None)
    (refused,) = decoded(
        spark, source_of(PROTO3, [optional("colour", "string")], "Event"), [message.SerializeToString()]
    )
    assert refused.reason == "field 'colour': 3 is no value of shop.Event.Colour"


def test_the_message_is_that_of_the_indexes_behind_the_schema_id(spark: SparkSession) -> None:
    source = source_of(PROTO3, [optional("name", "string"), optional("n", "int")], wire_format="confluent")
    other, inner = b"\0\0\0\0\7" + b"\2\2" + b"\x0a\1x", b"\0\0\0\0\7" + b"\4\2\0" + b"\x08\5"
    rows = decoded(
        spark, source, [other, inner, b"\0\0\0\0\7" + b"\2\x10", b"\0\0\0\0\7" + b"\xff\xff\3", b"\0\0\0\0\7"]
    )
    assert [tuple(row)[:2] for row in rows[:2]] == [("x", None), (None, 5)]
    assert rows[2].reason == "no message 8 in the schema"
    assert "indexes of a message" in rows[3].reason
    assert "it ends after 5 bytes" in rows[4].reason


DAMAGED = {
    None: "the record has no value",
    b"\x72\5a": "5 bytes are announced and 1 are left",
    b"\x72\1\xff": "a text that is not UTF-8",
    b"\x70\1": "'s' has wire type 0, and 2 in the schema",
    b"\x18": "ends too early",
    b"\x18" + b"\xff" * 10: "a number of more than ten bytes",
    b"\0\0": "no field's number",
    b"\x0f": "wire type 7",
    b"\xf3\7\x08": "ends too early",
    b"\xb2\2" + b"\3" + b"\1\1": "3 bytes are announced and 2 are left",
}


def test_damaged_records_are_dead_letters(spark: SparkSession) -> None:
    fields = [optional("s", "string"), optional("i32", "int"), optional("numbers", "array")]
    rows = decoded(spark, source_of(PROTO3, fields, "Event"), list(DAMAGED))
    for (value, expected), row in zip(DAMAGED.items(), rows, strict=True):
        assert expected in str(row.reason), value


def test_texts_that_are_not_utf_8_are_dead_letters(spark: SparkSession) -> None:
    values = [b"\x72" + bytes([len(text)]) + text for text in [*NOT_UTF_8, UTF_8.encode()]]
    *refused, good = decoded(spark, source_of(PROTO3, [optional("s", "string")], "Event"), values)
    assert (good.s, good.reason) == (UTF_8, None)
    assert all("a text that is not UTF-8" in row.reason for row in refused)


def test_the_depth_is_bounded(spark: SparkSession) -> None:
    def chain(length: int) -> bytes:
        value = b""
        for _ in range(length):
            size, encoded_size = len(value), b""
            while size > 127:
                encoded_size += bytes([size & 127 | 128])
                size >>= 7
            value = b"\xb2\2" + encoded_size + bytes([size]) + value
        return value

    deep, too_deep = decoded(spark, source_of(PROTO3, [optional("next", "map")], "Event"), [chain(90), chain(10_000)])
    assert deep.reason is None
    assert too_deep.reason == "invalid Protobuf: messages more than 100 deep"


class Draw:
    """Random messages."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def event(self) -> dict[str, Any]:
        draw = self.random
        item = lambda: {"id": draw.choice(["", "x", "\u20ac"]), "n": draw.randint(-5, 5)}  # noqa: E731
        every: dict[str, Any] = {
            "d": draw.randint(-99, 99) / 8, "f": draw.randint(-99, 99) / 8, "i32": draw.randint(-(2**31), 2**31 - 1),
            "i64": draw.randint(-(2**63), 2**63 - 1), "u64": draw.randint(0, 2**64 - 1), "s64": draw.randint(-9, 9),
            "x64": draw.randint(0, 2**64 - 1), "y32": draw.randint(-9, 9), "b": draw.random() < 0.5,
            "s": draw.choice(["", 'a"b', "\u20ac\U0001f600"]), "colour": draw.choice(["NONE", "RED", "BLUE"]),
            "raw": base64.b64encode(draw.randbytes(draw.randrange(4))).decode(),
            "maybe": draw.randint(-3, 3), "item": item(), "numbers": [draw.randint(-3, 3) for _ in range(3)],
            "unpacked": [1] * draw.randrange(3), "items": [item() for _ in range(draw.randrange(3))],
            "counts": {f"k{n}": n for n in range(draw.randrange(3))}, "wrapped": draw.randint(-3, 3),
            "words": ["w"] * draw.randrange(3), draw.choice(["left", "right"]): "7",
        }  # fmt: skip
        return {name: value for name, value in every.items() if draw.random() < 0.6}


def test_random_messages_equal_those_of_googles_library(spark: SparkSession, event_class: type[Message]) -> None:
    draw = Draw(3)
    events = [json_format.ParseDict(draw.event(), event_class()) for _ in range(300)]
    names = [field.name for field in event_class.DESCRIPTOR.fields if field.name not in ("next", "both")]
    fields = [optional(name, "any") for name in names]
    rows = decoded(spark, source_of(PROTO3, fields, "Event"), [event.SerializeToString() for event in events])
    for row, event in zip(rows, events, strict=True):
        assert row.reason is None
        expected = json_format.MessageToDict(
            event, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        found = {name: json.loads(row[name]) for name in names if row[name] is not None}
        assert found == {
            name: numbers(value, event.DESCRIPTOR.fields_by_name[name]) for name, value in expected.items()
        }


def numbers(value: Any, field: Any) -> Any:
    """Return a value of Google's JSON with its numbers of 64 bits, which are texts there, as numbers."""
    if isinstance(value, list):
        return [numbers(item, field) for item in value]
    if isinstance(value, dict):
        return {
            name: int(item) if isinstance(item, str) and field.name == "counts" else item
            for name, item in value.items()
        }
    wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) or field.name == "wrapped"
    return int(value) if wide else value


def test_damaged_messages_never_end_a_task(spark: SparkSession, event_class: type[Message]) -> None:
    draw = Draw(4)
    names = [field.name for field in event_class.DESCRIPTOR.fields]
    damaged = []
    for _ in range(2000):
        value = bytearray(json_format.ParseDict(draw.event(), event_class()).SerializeToString() or b"\1")
        for _ in range(draw.random.randint(1, 3)):
            value[draw.random.randrange(len(value))] = draw.random.randrange(256)
        damaged.append(bytes(value))
    rows = decoded(spark, source_of(PROTO3, [optional(name, "any") for name in names], "Event"), damaged)
    assert {row.reason is None for row in rows} == {True, False}


def test_a_schema_that_is_none_is_named(spark: SparkSession) -> None:
    def check(format_name: str, text: str, message_type: str | None = None, fields: str = "[]") -> Any:
        return spark._jvm.glassflow.SchemaCheck.problem(format_name, text, message_type, fields)

    assert check("protobuf", PROTO3) is None
    assert check("protobuf", PROTO3, "Item") is None
    assert check("protobuf", PROTO3, "Nobody") == "no message 'Nobody' in the schema"
    assert check("protobuf", "message {").startswith("is no .proto file: ")
    missing = 'syntax = "proto3"; message A { Missing m = 1; }'
    assert check("protobuf", missing) == "it refers to 'Missing', which it does not define"
    default = 'syntax = "proto2"; message A { optional int32 n = 1 [default = x]; }'
    assert check("protobuf", default) == "field 'n' has the default x, which is no value of its type"
    assert check("avro", "{}").startswith("is no schema of the format avro: ")
    record = '{"type": "record", "name": "A", "fields": [{"name": "n", "type": "int", "default": %s}]}'
    fields = '[["n", "int", true]]'
    assert check("avro", record % 5, None, fields) is None
    assert check("avro", record % '"x"', None, fields).startswith("the default of field 'n' does not fit its type: ")
    text = "the default of field 'n': expected string, got int"
    assert check("avro", record % 5, None, '[["n", "string", true]]') == text


def test_a_type_that_is_not_defined_is_skipped_and_cannot_be_read(spark: SparkSession) -> None:
    text = 'syntax = "proto3"; message A { string s = 1; repeated lib.Missing m = 2; }'
    value = b"\x0a\1x\x12\3abc"
    (skipped,) = decoded(spark, source_of(text, [optional("s", "string")]), [value])
    assert tuple(skipped) == ("x", None)
    (refused,) = decoded(spark, source_of(text, [optional("m", "array")]), [value])
    assert refused.reason == "the schema refers to 'lib.Missing', which it does not define"


def test_messages_of_googles_names_that_are_others_are_read_as_they_are(spark: SparkSession) -> None:
    text = 'syntax = "proto3"; package google.type; message Date { string value = 1; } message A { Date d = 1; }'
    (row,) = decoded(spark, source_of(text, [optional("d", "map")], "A"), [b"\x0a\3\x0a\1x"])
    assert tuple(row) == ('{"value":"x"}', None)


HOSTILE = """
syntax = "proto3";
import "confluent/type/decimal.proto";
message Hostile {
  confluent.type.Decimal amount = 1;
  repeated Wide wides = 2;
  map<bool, string> flags = 3;
  map<uint64, string> wide_keys = 4;
  oneof either { string left = 5; int64 right = 6; }
  sint32 s32 = 7;
  message Wide { FIELDS }
}
""".replace("FIELDS", " ".join(f"int32 f{n} = {n};" for n in range(1, 501)))


def test_hostile_messages_are_dead_letters_or_right(spark: SparkSession) -> None:
    def amount(scale: int) -> bytes:
        inner = b"\x0a\1\x0a\x18" + varint(scale % 2**64)
        return b"\x0a" + bytes([len(inner)]) + inner

    names = ("amount", "wides", "flags.true", "wide_keys.18446744073709551615", "left", "s32")
    source = source_of(HOSTILE, [optional(name, "any") for name in names])
    scales = (2**31 - 1, -(2**31), 10**9, -(10**9), 2)
    rows = decoded(spark, source, [
        *map(amount, scales),
        b"\x12\0" * 1_000_000,
        b"\x1a\5\x08\1\x12\1y" + b"\x1a\3\x12\1n" + b"\x22\x0e\x08" + varint(2**64 - 1) + b"\x12\1z",
        b"\x2a\1a\x30\2",
        b"\x38" + varint(2**33),
    ])  # fmt: skip
    assert [row.reason for row in rows[:4]] == [
        f"field 'amount': a decimal with the scale {scale}" for scale in scales[:4]
    ]
    assert rows[4].amount == "0.10"
    assert rows[5].reason.startswith("invalid Protobuf: too many nearly empty messages")
    assert (rows[6]["flags.true"], rows[6]["wide_keys.18446744073709551615"]) == ('"y"', '"z"')
    # `right` is not declared, and the last one of the oneof.
    assert (rows[7].left, rows[7].reason) == (None, None)
    assert rows[8].s32 == "0"


def test_paths_into_googles_messages(spark: SparkSession) -> None:
    text = """
    syntax = "proto3";
    import "google/type/money.proto";
    import "google/protobuf/struct.proto";
    message A { google.type.Money price = 1; google.protobuf.Struct free = 2; }
    """
    fields = [optional("price.units", "int"), optional("price", "map"), optional("free.a.b", "string")]
    inner = b"\x0a\x0c\x0a\1b\x12\7\x1a\5inner"  # the entry b, a text
    a_struct = b"\x2a" + bytes([len(inner)]) + inner
    entry = b"\x0a\1a\x12" + bytes([len(a_struct)]) + a_struct
    struct = b"\x0a" + bytes([len(entry)]) + entry
    value = b"\x0a\7\x0a\3EUR\x10\5" + b"\x12" + bytes([len(struct)]) + struct
    (row,) = decoded(spark, source_of(text, fields), [value])
    assert row.reason is None
    assert row["price.units"] == 5
    assert json.loads(row.price) == {"currency_code": "EUR", "units": 5, "nanos": 0}
    assert row["free.a.b"] == "inner"


def test_an_index_that_languages_count_differently_is_refused(spark: SparkSession) -> None:
    text = """
    syntax = "proto3";
    message O { map<string, int64> m = 1; message A { string s = 1; } message B { string s = 1; } }
    """
    fields, value = [optional("s", "string")], b"\0\0\0\0\7" + b"\4\0\2" + b"\x0a\1x"
    (refused,) = decoded(spark, source_of(text, fields, wire_format="confluent"), [value])
    assert refused.reason.endswith("its index has no one meaning; set message_type")
    (named,) = decoded(spark, source_of(text, fields, "O.A", wire_format="confluent"), [value])
    assert tuple(named) == ("x", None)
    # Nor has it where the entries are written, as in a compiled schema.
    entries = "message MEntry { option map_entry = true; optional string key = 1; optional int64 value = 2; }"
    explicit = text.replace("map<string, int64> m = 1;", f"repeated MEntry m = 1; {entries}")
    (refused,) = decoded(spark, source_of(explicit, fields, wire_format="confluent"), [value])
    assert "which has maps or groups" in refused.reason
    # Whether groups count among the nested messages differs, too.
    groups = """
    syntax = "proto2";
    message O { optional group G = 1 {} message A { optional string s = 1; } message B { optional string s = 1; } }
    """
    (refused,) = decoded(spark, source_of(groups, fields, wire_format="confluent"), [value])
    assert "which has maps or groups" in refused.reason
    (named,) = decoded(spark, source_of(groups, fields, "O.A", wire_format="confluent"), [value])
    assert tuple(named) == ("x", None)


def test_a_map_may_be_written_as_its_entries(spark: SparkSession) -> None:
    text = """
    syntax = "proto3";
    message A {
      repeated MEntry m = 1;
      message MEntry { option map_entry = true; string key = 1; int64 value = 2; }
    }
    """
    (row,) = decoded(spark, source_of(text, [optional("m", "map")], "A"), [b"\x0a\5\x0a\1k\x10\7"])
    assert tuple(row) == ('{"k":7}', None)


def test_defaults_of_proto2_are_read_as_in_c(spark: SparkSession) -> None:
    text = """
    syntax = "proto2";
    message A {
      optional double inf = 1 [default = -inf]; optional int32 hex = 2 [default = 0x10];
      optional int32 octal = 3 [default = -010]; optional Kind kind = 4 [default = ALSO_B];
      enum Kind { option allow_alias = true; A = 1; B = 2; ALSO_B = 2; }
    }
    """
    fields = [optional("inf", "float"), *(optional(name, "any") for name in ("hex", "octal", "kind"))]
    (row,) = decoded(spark, source_of(text, fields), [b""])
    assert tuple(row) == (float("-inf"), "16", "-8", '"B"', None)
