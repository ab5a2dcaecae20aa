"""The format `avro`: messages with the id of a schema in a registry (Confluent's wire format)."""

import base64
import io
import json
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.avro_schema import declared_fields
from glassflow_dagster.inference.events import Event, Events
from glassflow_dagster.inference.fields import Declared
from glassflow_dagster.kafka.records import Record
from glassflow_dagster.kafka.schema_registry import RegisteredSchema, RegistryReader

# A header with the schema's id, which newer clients write in place of the bytes before the value.
_ID_HEADER = "__value_schema_id"
_NUMBERED, _UNIQUE = 0, 1
_NUMBER_BYTES, _UNIQUE_BYTES = 5, 17


@dataclass(frozen=True)
class _Parsed:
    """A schema as fastavro takes it, and the fields that it declares."""

    schema: Any
    named: dict[str, Any]
    declared: dict[str, Declared | None]


class _Skip(Exception):
    """A message that is no event; the text is the reason."""


def read_avro_events(records: Iterable[Record], registry: RegistryReader) -> Events:
    """Decode messages by the schemas of a registry; count those that cannot be decoded by reason.

    The declared fields are those of the schema with the greatest number, or else of the last message. Raises
    `GlassflowError` where the registry does not answer.
    """
    parsed: dict[str, _Parsed] = {}
    objects: list[Event] = []
    skipped: Counter[str] = Counter()
    last = ""
    for record in records:
        try:
            schema_id, content = _split(record)
            if schema_id not in parsed:
                parsed[schema_id] = _parse(registry.schema(schema_id), schema_id)
            objects.append(_decode(content, parsed[schema_id]))
        except _Skip as reason:
            skipped[str(reason)] += 1
        else:
            last = schema_id
    numbers = [schema_id for schema_id in parsed if schema_id.isdigit()]
    newest = max(numbers, key=int) if numbers else last
    return Events(objects, skipped, with_schema=True, declared=parsed[newest].declared if parsed else None)


def _split(record: Record) -> tuple[str, bytes]:
    """Return the schema's id, as text, and the encoded event; raises `_Skip` where there is none."""
    if not record.value:
        raise _Skip("without a value")
    in_header = [value for name, value in record.headers or () if name == _ID_HEADER]
    # Of several headers the last one counts; one without a value says that the id is in the value.
    if in_header and in_header[-1]:
        return _id_of(in_header[-1]), record.value
    length = {_NUMBERED: _NUMBER_BYTES, _UNIQUE: _UNIQUE_BYTES}.get(record.value[0], 0)
    return _id_of(record.value[:length]), record.value[length:]


def _id_of(content: bytes) -> str:
    if len(content) == _NUMBER_BYTES and content[0] == _NUMBERED:
        return str(struct.unpack(">I", content[1:])[0])
    if len(content) == _UNIQUE_BYTES and content[0] == _UNIQUE:
        return str(uuid.UUID(bytes=content[1:]))
    raise _Skip("without a schema id")


def _parse(schema: RegisteredSchema | None, schema_id: str) -> _Parsed:
    if schema is None:
        raise _Skip("with a schema id that the registry does not know")
    if schema.type != "AVRO":
        raise GlassflowError(
            f"schema {schema_id} is of type {schema.type}, and `infer` reads Avro only; write the definition by hand, "
            f"with format: {'protobuf' if schema.type == 'PROTOBUF' else 'json_schema'} and schema_registry"
        )
    named: dict[str, Any] = {}
    try:
        for text in schema.references:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (ValueError, SchemaParseException) as error:
        raise GlassflowError(f"schema {schema_id} of the registry is no Avro schema: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise GlassflowError(f"schema {schema_id} of the registry is not that of a record, so it has no fields")
    return _Parsed(parsed, named, declared_fields(parsed, named))


def _decode(content: bytes, parsed: _Parsed) -> Event:
    stream = io.BytesIO(content)
    try:
        found = fastavro.schemaless_reader(stream, parsed.schema, None)
    except Exception as error:
        raise _Skip("not in its schema's Avro") from error
    if stream.read(1) or not isinstance(found, dict):
        raise _Skip("not in its schema's Avro")
    event: Event = _plain(found)
    return event


def _plain(value: Any) -> Any:
    """Return a decoded value with values of JSON in it, in the form in which a pipeline has them."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | uuid.UUID | timedelta) else value
