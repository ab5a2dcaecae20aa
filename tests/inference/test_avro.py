"""What `infer` makes of an Avro topic: fields and columns by the schema, keys by the values."""

import io
import json
import struct
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage
from typing import Any
from uuid import UUID

import fastavro
import pytest
from pydantic import SecretStr

from glassflow_dagster.definition.model.connections import SchemaRegistry
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.schema_events import read_avro_events
from glassflow_dagster.stores.kafka.avro_values import AvroReader
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.schema_registry import RegistryReader, RegistryRedirects
from tests.inference.proposals import fields_of, type_and_column
from tests.servers.registry import Registry, serving

ADDRESS = {"type": "record", "name": "Address", "fields": [
    {"name": "city", "type": "string"},
    {"name": "zip", "type": ["null", "string"], "default": None},
]}  # fmt: skip
# Type, a value, and the field's type and the column that are proposed.
TYPES: list[tuple[Any, Any, str, str]] = [
    ("boolean", True, "bool", "Bool"),
    ("int", 1, "int", "Int32"),
    ("long", 1, "int", "Int64"),
    ("float", 0.5, "float", "Float32"),
    ("double", 0.5, "float", "Float64"),
    ("string", "a", "string", "String"),
    ("bytes", b"a", "string", "String"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "string", "LowCardinality(String)"),
    ({"type": "fixed", "name": "F", "size": 1}, b"a", "string", "String"),
    ({"type": "string", "logicalType": "uuid"}, str(UUID(int=1)), "string", "UUID"),
    ({"type": "int", "logicalType": "date"}, 1, "timestamp", "Date32"),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1, "timestamp", "DateTime64(3)"),
    ({"type": "long", "logicalType": "timestamp-micros"}, 1, "timestamp", "DateTime64(6)"),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 1, "timestamp", "DateTime64(3)"),
    ({"type": "int", "logicalType": "time-millis"}, 1, "int", "Int32"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\x01", "decimal", "Decimal(9, 2)"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 90, "scale": 2}, b"\x01", "string", "String"),
    ({"type": "int", "logicalType": "of nobody"}, 1, "int", "Int32"),
    (["null", "long"], 1, "int", "Nullable(Int64)"),
    (["string", "null"], "a", "string", "Nullable(String)"),
    (["null", "long", "string"], 1, "int", "Int64"),
    (["long", "string"], "a", "string", "String"),
    ("null", None, "string", "Nullable(String)"),
    ({"type": "array", "items": "long"}, [1], "array", "Array(Int64)"),
    ({"type": "array", "items": ["null", "string"]}, ["a", None], "array", "Array(Nullable(String))"),
    ({"type": "array", "items": ADDRESS}, [{"city": "a", "zip": None}], "array", "String"),
    (["null", {"type": "array", "items": "long"}], [1], "array", "Nullable(String)"),
    ({"type": "map", "values": "double"}, {"a": 0.5}, "map", "Map(String, Float64)"),
]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as found:
        yield found


def reader(registry: Registry, **access: Any) -> AvroReader:
    return AvroReader(RegistryReader(SchemaRegistry(url=registry.url, **access)))


def of_fields(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Event", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def record(schema_id: int, content: bytes, **changes: Any) -> Record:
    value = b"\0" + struct.pack(">I", schema_id) + content
    plain = {"topic": "t", "partition": 0, "offset": 0, "timestamp_ms": 0, "key": None, "value": value, "headers": ()}
    return Record(**{**plain, **changes})


def encoded(schema: Any, event: Any, named: dict[str, Any] | None = None) -> bytes:
    stream = io.BytesIO()
    # As plain types: their values are written here as they are stored.
    plain = json.loads(json.dumps(schema).replace("logicalType", "kind"))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain, named_schemas=named or {}), event)
    return stream.getvalue()


@pytest.mark.parametrize(("kind", "value", "declared", "column"), TYPES)
def test_each_type_has_a_field_and_a_column_that_takes_it(
    kind: Any, value: Any, declared: str, column: str, registry: Registry
) -> None:
    schema = of_fields(("f", kind))
    number = registry.register("t-value", schema)
    events = read_avro_events([record(number, encoded(schema, {"f": value}))], reader(registry))
    assert not events.skipped
    assert type_and_column(events) == (declared, column)


def test_records_within_are_flattened_and_references_are_looked_up(registry: Registry) -> None:
    registry.register("address", ADDRESS)
    schema = of_fields(("id", "string"), ("to", "Address"), ("from", ["null", "Address"]))
    number = registry.register("t-value", schema, [{"name": "Address", "subject": "address", "version": 1}])
    named: dict[str, Any] = {}
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    content = encoded(schema, {"id": "a", "to": {"city": "b", "zip": None}, "from": None}, named)
    events = read_avro_events([record(number, content)], reader(registry))
    assert [(field.name, field.required) for field in fields_of(events)] == [
        ("id", True), ("to.city", True), ("to.zip", False), ("from.city", False), ("from.zip", False),
    ]  # fmt: skip


def test_of_several_schemas_the_newest_counts_and_what_older_events_lack_is_optional(registry: Registry) -> None:
    old, new = (of_fields(("id", "string"), (name, "int")) for name in ("gone", "more"))
    first, second = (registry.register("t-value", schema) for schema in (old, new))
    older = record(first, encoded(old, {"id": "a", "gone": 1}))
    events = read_avro_events([record(second, encoded(new, {"id": "b", "more": 1})), older], reader(registry))
    assert [(field.name, field.required, field.missing) for field in fields_of(events)] == [
        ("id", True, 0), ("more", False, 1),
    ]  # fmt: skip


def test_the_id_may_be_in_a_header_and_what_is_no_event_is_counted(registry: Registry) -> None:
    schema = of_fields(("id", "string"))
    number = registry.register("t-value", schema)
    content = encoded(schema, {"id": "a"})
    by_number = (("__value_schema_id", b"\0" + struct.pack(">I", number)),)
    by_uuid = (("__value_schema_id", b"\1" + UUID(registry.schemas[0]["guid"]).bytes),)
    records = [
        record(number, content, value=content, headers=by_number),
        record(number, content, value=content, headers=by_uuid),
        record(number, content, value=None),
        record(number, content + b"more"),
        record(number, content[:1]),
        record(number + 1, content),
        record(number, content, value=content),
    ]
    events = read_avro_events(records, reader(registry))
    assert events.objects == [{"id": "a"}] * 2
    assert events.skipped == {
        "without a value": 1,
        "not in its schema's Avro": 2,
        "with a schema id that the registry does not know": 1,
        "without a schema id": 1,
    }


def test_credentials_are_shown_to_the_registrys_host_only() -> None:
    asked = urllib.request.Request("http://registry.test:8081/a", headers={"Authorization": "Basic s3cret"})
    for place, is_shown in (("http://registry.test:8081/b", True), ("http://elsewhere.test/b", False)):
        followed = RegistryRedirects().redirect_request(asked, None, 302, "Found", HTTPMessage(), place)
        assert followed is not None
        assert followed.has_header("Authorization") == is_shown


def test_a_registry_that_is_away_or_refuses_and_other_schemas_are_told(registry: Registry) -> None:
    sampled = [record(registry.register("t-value", 'syntax = "proto3";', kind="PROTOBUF"), b"")]
    with pytest.raises(GlassflowError, match="schema 1 of the registry is of type PROTOBUF, not AVRO; correct"):
        read_avro_events(sampled, reader(registry))
    registry.authorization = "Bearer token"
    with pytest.raises(GlassflowError, match=r"refuses the credentials \(401\); correct schema_registry"):
        read_avro_events(sampled, reader(registry, api_key="a", api_secret=SecretStr("b")))
    with pytest.raises(GlassflowError, match="is of type PROTOBUF"):
        read_avro_events(sampled, reader(registry, bearer_token=SecretStr("token")))
    registry.failures = [(500, "no JSON"), (200, "no JSON"), (200, "{}")]
    with pytest.raises(GlassflowError, match=r"does not answer \(http.*: 500 .*\); start it"):
        read_avro_events(sampled, reader(registry))
    for _ in range(2):
        with pytest.raises(GlassflowError, match="answers without a schema; is it a schema registry"):
            read_avro_events(sampled, reader(registry))
    registry.failures = [(200, '{"schema": "5"}')]
    with pytest.raises(GlassflowError, match="schema 1 of the registry is no"):
        read_avro_events(sampled, reader(registry))
    with pytest.raises(GlassflowError, match=r"does not answer \(http://127\.0\.0\.1:1: .*refused"):
        read_avro_events(sampled, AvroReader(RegistryReader(SchemaRegistry(url="http://127.0.0.1:1"))))
