"""The keys of messages: their fields are proposed where all keys are objects."""

import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.connections import SchemaRegistry
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.formats import read_events, read_with_schema
from glassflow_dagster.inference.given_schema import GivenSchema
from glassflow_dagster.inference.proposal_text import Encoding, propose
from glassflow_dagster.inference.record_keys import RecordKeys, read_keys
from glassflow_dagster.inference.servers import Connections
from glassflow_dagster.inference.topic_sample import SampledTopic
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.schema_registry import RegistryReader
from tests.servers.registry import Registry, serving

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
VALUE = {"type": "record", "name": "Value", "fields": [{"name": "name", "type": "string"}]}
ID = b"\0\0\0\0\1"
PLAIN, WITH_ID = b'{"name":"x"}', ID + b'{"name":"x"}'


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as running:
        yield running


def found(
    keys: Sequence[bytes | None], value: bytes = PLAIN, registry: Registry | None = None, headers: Any = ()
) -> tuple[RecordKeys | None, Source]:
    """Return the keys of messages, and the source that is proposed for these."""
    records = [Record("t", 0, number, None, key, value, headers) for number, key in enumerate(keys)]
    reader = RegistryReader(SchemaRegistry(url=registry.url)) if registry else None
    events = read_events(records, reader, print)
    record_keys = read_keys(records, reader, may_have_ids=events.with_schema)
    return record_keys, proposed(events, Encoding(keys=record_keys))


def proposed(events: Events, encoding: Encoding) -> Source:
    """Return the source that is proposed for messages."""
    connections = Connections({"brokers": ["b:1"]}, {"host": "h", "port": 1, "database": "d", "username": "u"})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proposed.yaml"
        sampled = SampledTopic("topic", events.messages, 1)
        file.write_text(propose(sampled, events, connections, None, encoding))
        return load_pipeline(file, {}).source


def fields(source: Source) -> dict[str, tuple[str, bool]]:
    return {field.name: (field.type, field.needed) for field in source.fields}


def avro(schema: dict[str, Any], record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def test_fields_of_json_keys_are_declared_behind_those_of_the_value() -> None:
    keys, source = found([b'{"id":1,"shop":{"code":"a"}}', b'{"id":2,"shop":null}'])
    assert keys is not None
    assert (source.key_format, source.key_schema) == ("json", None)
    assert fields(source) == {"name": ("string", True), "_key.id": ("int", True), "_key.shop.code": ("string", False)}


def test_without_a_key_in_some_messages_no_field_of_it_is_required() -> None:
    _, source = found([b'{"id":1}', None])
    assert fields(source)["_key.id"] == ("int", False)


@pytest.mark.parametrize(
    "keys",
    [[None], [b"17"], [b"k"], [b'{"id":1}', b"k"], [b'{"id":1}', b""], [b"{}"], [ID + b'{"id":1}'], [ID + b"\2"]],
)
def test_keys_that_are_not_all_objects_of_a_known_encoding_have_no_fields(keys: list[bytes | None]) -> None:
    record_keys, source = found(keys)
    assert record_keys is None
    assert source.key_format is None


@pytest.mark.parametrize(("start", "wire_format"), [(ID, None), (b"", "none")])
def test_json_keys_may_have_a_schema_id_where_the_values_have_one(start: bytes, wire_format: str | None) -> None:
    _, source = found([start + b'{"id":1}'] * 2, WITH_ID)
    assert (source.key_schema.wire_format if source.key_schema else None) == wire_format
    assert fields(source)["_key.id"] == ("int", True)


def test_avro_keys_have_the_types_of_their_schema(registry: Registry) -> None:
    value = b"\0" + registry.register("t-value", VALUE).to_bytes(4, "big") + avro(VALUE, {"name": "x"})
    start = b"\0" + registry.register("t-key", KEY).to_bytes(4, "big")
    _, source = found([start + avro(KEY, {"id": 1})], value, registry)
    assert (source.format, source.key_format, fields(source)["_key.id"]) == ("avro", "avro", ("int", True))


@pytest.mark.parametrize(("start", "is_declared"), [(b"", True), (ID, False)])
def test_beside_values_of_a_schema_in_a_file_json_keys_have_no_schema_id(
    start: bytes, tmp_path: Path, *, is_declared: bool
) -> None:
    """The definition has no registry then, by whose format ids would be skipped."""
    given = GivenSchema(tmp_path / "value.avsc", has_schema_id=True)
    given.file.write_text(json.dumps(VALUE))
    records = [Record("t", 0, n, None, start + b'{"id":1}', ID + avro(VALUE, {"name": "x"}), ()) for n in range(2)]
    events = read_with_schema(records, given.source(), lambda _: "")
    keys = read_keys(records, None, may_have_ids=False)
    source = proposed(events, Encoding(given, keys))
    assert (source.format, source.key_format) == ("avro", "json" if is_declared else None)
    assert ("_key.id" in fields(source)) == is_declared


@pytest.mark.parametrize(("schema", "kind"), [("string", "AVRO"), ("message Key {}", "PROTOBUF")])
def test_other_schemas_of_keys_have_no_fields_that_are_proposed(registry: Registry, schema: str, kind: str) -> None:
    value = b"\0" + registry.register("t-value", VALUE).to_bytes(4, "big") + avro(VALUE, {"name": "x"})
    start = b"\0" + registry.register("t-key", json.dumps(schema) if kind == "AVRO" else schema, kind=kind).to_bytes(
        4, "big"
    )
    record_keys, source = found([start + b"\2a"], value, registry)
    assert (record_keys, source.key_format) == (None, None)


def test_an_object_of_the_value_that_is_called_as_the_key_is_left_out() -> None:
    _, source = found([None], b'{"name":"x","_key":{"id":1},"_key.n":2}')
    assert fields(source).keys() == {"name"}
