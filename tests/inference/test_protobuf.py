"""What `infer` makes of a Protobuf topic: fields and columns by the schema, keys by the values."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from glassflow_dagster.definition.model.connections import SchemaRegistry
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.columns import choose_column
from glassflow_dagster.inference.fields import MAX_FIELDS, declared_fields
from glassflow_dagster.inference.formats import read_events
from glassflow_dagster.inference.schema_events import read_protobuf_events
from glassflow_dagster.stores.kafka.protobuf_values import Ask, ProtobufReader
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.schema_registry import RegistryReader
from glassflow_dagster.stream.scala.reader_process import ReaderProcess
from tests.inference.proposals import fields_of, type_and_column
from tests.servers.registry import Registry, serving

# They start a JVM.
pytestmark = pytest.mark.servers

GOOGLES = "".join(
    f'import "google/protobuf/{name}.proto"; ' for name in ("timestamp", "duration", "wrappers", "struct", "field_mask")
)
# Declaration, a value of it on the wire, and the field's type and the column that are proposed.
TYPES: list[tuple[str, bytes, str, str]] = [
    ("bool f", b"\x08\1", "bool", "Bool"),
    ("int32 f", b"\x08\1", "int", "Int32"),
    ("sint32 f", b"\x08\1", "int", "Int32"),
    ("sfixed32 f", b"\x0d\1\0\0\0", "int", "Int32"),
    ("int64 f", b"\x08\1", "int", "Int64"),
    ("sint64 f", b"\x08\1", "int", "Int64"),
    ("sfixed64 f", b"\x09\1\0\0\0\0\0\0\0", "int", "Int64"),
    ("uint32 f", b"\x08\1", "uint", "UInt32"),
    ("fixed32 f", b"\x0d\1\0\0\0", "uint", "UInt32"),
    ("uint64 f", b"\x08\1", "uint", "UInt64"),
    ("fixed64 f", b"\x09\1\0\0\0\0\0\0\0", "uint", "UInt64"),
    ("float f", b"\x0d\0\0\0\x3f", "float", "Float32"),
    ("float f", b"\x0d\0\0\xc0\x7f", "float", "Float32"),
    ("double f", b"\x09\0\0\0\0\0\0\xe0\x3f", "float", "Float64"),
    ("string f", b"\x0a\1a", "string", "String"),
    ("bytes f", b"\x0a\1a", "string", "String"),
    ("Colour f", b"\x08\1", "string", "LowCardinality(String)"),
    # Without presence a message always has a value; with it the field may be missing.
    ("int32 f", b"", "int", "Int32"),
    ("optional int32 f", b"\x08\1", "int", "Nullable(Int32)"),
    ("optional Colour f", b"\x08\1", "string", "LowCardinality(Nullable(String))"),
    ("repeated int64 f", b"\x0a\1\1", "array", "Array(Int64)"),
    ("repeated Colour f", b"\x0a\1\1", "array", "Array(String)"),
    ("repeated bytes f", b"\x0a\1a", "array", "String"),
    ("repeated Part f", b"\x0a\0", "array", "String"),
    ("repeated google.protobuf.Timestamp f", b"\x0a\0", "array", "String"),
    ("map<string, double> f", b"", "map", "Map(String, Float64)"),
    ("map<int32, string> f", b"\x0a\2\x08\1", "map", "Map(Int32, String)"),
    ("map<uint64, Colour> f", b"\x0a\2\x08\1", "map", "Map(UInt64, String)"),
    ("map<bool, bool> f", b"\x0a\2\x08\1", "map", "Map(String, Bool)"),
    ("map<string, Part> f", b"", "map", "String"),
    ("Nothing f", b"\x0a\0", "map", "Nullable(String)"),
    ("google.protobuf.Timestamp f", b"\x0a\2\x08\1", "timestamp", "Nullable(DateTime64(9))"),
    ("google.protobuf.Duration f", b"\x0a\2\x08\1", "decimal", "Nullable(Decimal(21, 9))"),
    ("google.protobuf.FieldMask f", b"\x0a\3\x0a\1a", "string", "Nullable(String)"),
    ("google.protobuf.Struct f", b"\x0a\0", "map", "Nullable(String)"),
    ("google.protobuf.ListValue f", b"\x0a\0", "array", "Nullable(String)"),
    ("google.protobuf.Value f", b"\x0a\2\x20\1", "bool", "Bool"),
    ("google.protobuf.Value f", b"\x0a\3\x1a\1a", "string", "String"),
    ("google.protobuf.BoolValue f", b"\x0a\2\x08\1", "bool", "Nullable(Bool)"),
    ("google.protobuf.Int32Value f", b"\x0a\2\x08\1", "int", "Nullable(Int32)"),
    ("google.protobuf.UInt64Value f", b"\x0a\2\x08\1", "uint", "Nullable(UInt64)"),
    ("google.protobuf.DoubleValue f", b"\x0a\0", "float", "Nullable(Float64)"),
    ("google.protobuf.StringValue f", b"\x0a\0", "string", "Nullable(String)"),
    ("google.protobuf.BytesValue f", b"\x0a\0", "string", "Nullable(String)"),
    ("google.type.Date f", b"\x0a\6\x08\1\x10\1\x18\1", "timestamp", "Nullable(Date32)"),
    ("confluent.type.Decimal f", b"\x0a\3\x0a\1\1", "string", "Nullable(String)"),
]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as found:
        yield found


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    with ReaderProcess(print) as process:
        yield process.ask


def record(schema_id: int, content: bytes, path: bytes = b"\0", **changes: Any) -> Record:
    value = b"\0" + schema_id.to_bytes(4, "big") + path + content
    plain = {"topic": "t", "partition": 0, "offset": 0, "timestamp_ms": 0, "key": None, "value": value, "headers": ()}
    return Record(**{**plain, **changes})


def reader(registry: Registry, ask: Ask) -> ProtobufReader:
    return ProtobufReader(ask, RegistryReader(SchemaRegistry(url=registry.url)))


def proto3(*messages: str) -> str:
    return f'syntax = "proto3"; package shop; {GOOGLES} {" ".join(messages)}'


@pytest.mark.parametrize(("declaration", "value", "declared", "column"), TYPES)
def test_each_type_has_a_field_and_a_column_that_takes_it(
    declaration: str, value: bytes, declared: str, column: str, registry: Registry, ask: Ask
) -> None:
    inner = "enum Colour { NONE = 0; RED = 1; } message Part { int32 n = 1; } message Nothing {}"
    number = registry.register("t", proto3(f"message Event {{ {declaration} = 1; {inner} }}"), kind="PROTOBUF")
    events = read_protobuf_events([record(number, value)], reader(registry, ask))
    assert not events.skipped
    assert type_and_column(events) == (declared, column)


def test_messages_within_are_flattened_and_references_are_looked_up(registry: Registry, ask: Ask) -> None:
    registry.register(
        "address", proto3("message Address { string city = 1; repeated string lines = 2; }"), (), "PROTOBUF"
    )
    text = proto3("message Event { string id = 1; Address to = 2; oneof pay { int64 cents = 3; Card card = 4; }"
                  " message Card { string no = 1; Event of = 2; } }")  # fmt: skip
    references = [{"name": "address.proto", "subject": "address", "version": 1}]
    number = registry.register("t", text, references, "PROTOBUF")
    value = b"\x0a\1a" + b"\x12\3\x0a\1b" + b"\x22\3\x0a\1c"
    events = read_protobuf_events([record(number, value)], reader(registry, ask))
    found = [(field.name, choose_column(field).type, field.required) for field in fields_of(events)]
    assert found == [
        ("id", "String", True),
        ("to.city", "Nullable(String)", False),
        ("to.lines", "Nullable(String)", False),
        ("cents", "Nullable(Int64)", False),
        ("card.no", "Nullable(String)", False),
        # It would never end.
        ("card.of", "Nullable(String)", False),
    ]
    assert events.objects == [{"id": "a", "to": {"city": "b", "lines": []}, "card": {"no": "c"}}]


def test_proto2_says_itself_which_fields_a_message_has(registry: Registry, ask: Ask) -> None:
    text = """
    syntax = "proto2";
    message Event {
      required string id = 1; optional int32 n = 2; optional int32 seven = 3 [default = 7];
      optional group Part = 4 { required int32 n = 1; } repeated group Hit = 5 { optional int32 n = 1; }
    }
    """
    number = registry.register("t", text, kind="PROTOBUF")
    value = b"\x0a\1a" + b"\x10\5" + b"\x23\x08\1\x24" + b"\x2b\x2c"
    events = read_protobuf_events([record(number, value)], reader(registry, ask))
    assert events.objects == [{"id": "a", "n": 5, "seven": 7, "part": {"n": 1}, "hit": [{}]}]
    assert [(field.name, field.required) for field in fields_of(events)] == [
        ("id", True), ("n", False), ("seven", True), ("part.n", False), ("hit", True),
    ]  # fmt: skip


def test_of_several_schemas_the_newest_counts_and_of_its_messages_the_most_frequent(
    registry: Registry, ask: Ask
) -> None:
    old, new = (
        proto3(f"message Other {{ string id = 1; }} message Event {{ string id = 1; int32 {name} = {tag}; }}")
        for name, tag in (("gone", 2), ("more", 3))
    )
    first, second = (registry.register("t", text, kind="PROTOBUF") for text in (old, new))
    event, other = b"\x0a\1a", b"\2\2"
    records = [
        record(second, event, other), record(second, event), record(second, event, other),
        *[record(first, event + b"\x10\1", other)] * 3,
    ]  # fmt: skip
    events = read_protobuf_events(records, reader(registry, ask))
    assert [(field.name, field.required, field.missing) for field in fields_of(events)] == [
        ("id", True, 0), ("more", False, 4),
    ]  # fmt: skip


def test_the_id_may_be_in_a_header_and_what_is_no_event_is_counted(registry: Registry, ask: Ask) -> None:
    text = proto3("message Other {} message Event { string id = 1; double d = 2; unknown.Type u = 3; }")
    number = registry.register("t", text, kind="PROTOBUF")
    event, path = b"\x0a\1a", b"\2\2"
    by_number = (("__value_schema_id", b"\0" + number.to_bytes(4, "big") + path),)
    by_uuid = (("__value_schema_id", b"\1" + UUID(registry.schemas[0]["guid"]).bytes + path),)
    records = [
        record(number, event, path),
        record(number, b"", value=event, headers=by_number),
        record(number, b"", value=event, headers=by_uuid),
        # An empty message, and one with a field that nobody can read.
        record(number, b"", value=b"", headers=by_number),
        record(number, event + b"\x1a\1x" + b"\x11\0\0\0\0\0\0\xf0\x7f", path),
        record(number, b"", value=None),
        record(number, event[:2], path),
        record(number, event, b"\2\4"),
        record(number + 1, event),
        record(number, b"", value=event),
    ]
    events = read_protobuf_events(records, reader(registry, ask))
    assert events.objects == [
        *[{"id": "a", "d": 0.0}] * 3, {"id": "", "d": 0.0}, {"id": "a", "d": "Infinity"},
    ]  # fmt: skip
    assert [field.name for field in fields_of(events)] == ["id", "d"]
    assert events.skipped == {
        "without a value": 1,
        "not decoded (invalid Protobuf: 1 bytes are announced and 0 are left, before byte 4)": 1,
        "not decoded (no message 2 in the schema)": 1,
        "with a schema id that the registry does not know": 1,
        "without a schema id": 1,
    }


def test_a_schema_with_more_fields_than_a_definition_has_is_cut_off(registry: Registry, ask: Ask) -> None:
    """Messages in each other have as many fields as paths lead to them: here 4 ** 9."""
    names = ("a", "b", "c", "d")
    messages = [
        f"message M{depth} {{ {' '.join(f'M{depth + 1} {name} = {tag};' for tag, name in enumerate(names, 1))} }}"
        for depth in range(9)
    ]
    text = proto3("message Event { string id = 1; M0 m = 2; }", *messages, "message M9 { int32 n = 1; }")
    number = registry.register("t", text, kind="PROTOBUF")
    events = read_protobuf_events([record(number, b"\x0a\1a")], reader(registry, ask))
    assert events.declared is not None
    found = declared_fields(events.objects, events.declared)
    assert (len(found.declared), len(found.left_out)) == (MAX_FIELDS, MAX_FIELDS)


def test_other_schemas_and_such_as_are_none_are_told(registry: Registry, ask: Ask) -> None:
    number = registry.register("t", '"string"')
    with pytest.raises(GlassflowError, match="schema 1 of the registry is of type AVRO, not PROTOBUF; correct"):
        read_protobuf_events([record(number, b"")], reader(registry, ask))
    number = registry.register("t", "message {", kind="PROTOBUF")
    with pytest.raises(GlassflowError, match=r"schema 2 of the registry is no \.proto file: .*; correct it"):
        read_protobuf_events([record(number, b"")], reader(registry, ask))


def test_the_registry_says_which_format_messages_have(registry: Registry) -> None:
    known = RegistryReader(SchemaRegistry(url=registry.url))
    number = registry.register("t", proto3("message Event { string id = 1; }"), kind="PROTOBUF")
    header = (("__value_schema_id", b"\0" + number.to_bytes(4, "big") + b"\0"),)
    for sampled in (record(number, b"\x0a\1a"), record(number, b"", value=b"\x0a\1a", headers=header)):
        events = read_events([sampled], known, print)
        assert (events.format, events.objects) == ("protobuf", [{"id": "a"}])
    assert read_events([record(7, b"")], known, print).format == "avro"
    assert read_events([record(number, b"{}", b"")], known, print).format == "json"


def test_a_java_that_has_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassflow_dagster.stream.scala.reader_process.OPTIONS", ("-XX:NoSuchOption",))
    with (
        ReaderProcess(print) as process,
        pytest.raises(GlassflowError, match="cannot read Protobuf: Unrecognized VM option"),
    ):
        process.ask("{}")
