"""Decodes Avro values and keys outside Spark, for people to read: `infer`, and the list of dead letters."""

import base64
import io
import json
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal

import fastavro
from fastavro.schema import SchemaParseException

from glassflow_dagster.config.model.source import Source
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.schema_registry import RegisteredSchema, RegistryReader

Headers = Iterable[tuple[str, bytes | None]]

_NUMBERED, _UNIQUE = 0, 1
_NUMBER_BYTES, _UNIQUE_BYTES = 5, 17
# Stands for the schema in a definition, which has no id.
_OWN = ""
_DAMAGED = "not in its schema's Avro"


@dataclass(frozen=True)
class AvroSchema:
    """A record's schema, as fastavro parses it, and its named schemas."""

    schema: Any
    named: dict[str, Any]


class NotDecodedError(Exception):
    """A value that is no Avro record of a known schema; the text is the reason."""


class UnsuitableSchema(GlassflowError):
    """A schema that is not of an Avro record, so it has no fields. Correct the format of the source."""


@dataclass
class AvroReader:
    """Decodes values, or keys, by the schemas of a registry, or by one schema.

    has_schema_id: an id precedes each value, or is in a header. parsed: the schemas so far, by id. part: what is
    decoded.
    """

    registry: RegistryReader | None
    own: str | None = None
    has_schema_id: bool = True
    parsed: dict[str, AvroSchema] = field(default_factory=dict)
    part: Literal["value", "key"] = "value"

    @classmethod
    def of(cls, source: Source) -> "AvroReader | None":
        """Return the reader of a source's values; None where they are not Avro."""
        if source.format != "avro":
            return None
        registry = RegistryReader(source.schema_registry) if source.schema_registry else None
        own = source.schema_.file if source.schema_ and registry is None else None
        return cls(registry, own, source.encoding.has_schema_id)

    def decode(self, value: bytes | None, headers: Headers) -> tuple[str, dict[str, Any]]:
        """Return the schema's id ("" for the definition's own) and the record, with values of JSON in it.

        Raises `NotDecodedError`, and `GlassflowError` where the registry does not answer or has no Avro schema.
        """
        if not value:
            raise NotDecodedError("without a value")
        schema_id, content = _split(value, headers, f"__{self.part}_schema_id") if self.has_schema_id else (_OWN, value)
        if self.own is not None:
            schema_id = _OWN
        if schema_id not in self.parsed:
            self.parsed[schema_id] = _parse(self._schema(schema_id), schema_id)
        return schema_id, _decode(content, self.parsed[schema_id])

    def _schema(self, schema_id: str) -> RegisteredSchema | None:
        if self.registry is None:
            return RegisteredSchema("AVRO", self.own or "", ())
        return self.registry.schema(schema_id)


def _split(value: bytes, headers: Headers, id_header: str) -> tuple[str, bytes]:
    """Return the schema's id, as text, and the encoded record; raises `NotDecodedError` where there is none.

    id_header: the header in which newer clients write the id, in place of the bytes before the value.
    """
    in_header = [content for name, content in headers if name == id_header]
    # Of several headers the last one counts; one without a value says that the id is in the value.
    if in_header and in_header[-1]:
        return _id_of(in_header[-1]), value
    length = {_NUMBERED: _NUMBER_BYTES, _UNIQUE: _UNIQUE_BYTES}.get(value[0], 0)
    return _id_of(value[:length]), value[length:]


def _id_of(content: bytes) -> str:
    if len(content) == _NUMBER_BYTES and content[0] == _NUMBERED:
        return str(struct.unpack(">I", content[1:])[0])
    if len(content) == _UNIQUE_BYTES and content[0] == _UNIQUE:
        return str(uuid.UUID(bytes=content[1:]))
    raise NotDecodedError("without a schema id")


def _parse(schema: RegisteredSchema | None, schema_id: str) -> AvroSchema:
    if schema is None:
        raise NotDecodedError("with a schema id that the registry does not know")
    told = f"schema {schema_id} of the registry" if schema_id else "sources[0].schema.file"
    if schema.type != "AVRO":
        raise UnsuitableSchema(f"{told} is of type {schema.type}, not AVRO; correct the source's format")
    named: dict[str, Any] = {}
    try:
        for text in schema.references:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (ValueError, TypeError, SchemaParseException) as error:
        raise GlassflowError(f"{told} is no Avro schema: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise UnsuitableSchema(f"{told} is not that of a record, so it has no fields")
    return AvroSchema(parsed, named)


def _decode(content: bytes, schema: AvroSchema) -> dict[str, Any]:
    stream = io.BytesIO(content)
    try:
        found = fastavro.schemaless_reader(stream, schema.schema, None)
    except Exception as error:
        raise NotDecodedError(_DAMAGED) from error
    if stream.read(1) or not isinstance(found, dict):
        raise NotDecodedError(_DAMAGED)
    record: dict[str, Any] = _plain(found)
    return record


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
