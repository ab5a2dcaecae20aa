"""Decodes Avro values and keys outside Spark, for people to read: `infer`, and the list of dead letters."""

import base64
import io
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.stores.kafka.confluent_wire_format import Headers, split_schema_id
from glassflow_dagster.stores.kafka.schema_registry import RegisteredSchema, RegistryReader
from glassflow_dagster.stores.kafka.schema_values import (
    UNKNOWN_ID,
    WITHOUT_ID,
    WITHOUT_VALUE,
    NotDecodedError,
    UnusableSchemaError,
)

_DAMAGED = "not in its schema's Avro"
# Stands for the schema in a definition, which has no id.
_OWN = ""


@dataclass(frozen=True)
class AvroSchema:
    """A record's schema, as fastavro parses it, and its named schemas."""

    schema: Any
    named: dict[str, Any]


@dataclass
class AvroReader:
    """Decodes values by the schemas of a registry, or by one schema.

    has_schema_id: an id precedes each value, or is in a header.
    parsed: the schemas so far, by id.
    """

    registry: RegistryReader | None
    own: str | None = None
    has_schema_id: bool = True
    parsed: dict[str, AvroSchema] = field(default_factory=dict)

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

        Raises `NotDecodedError`, `UnusableSchemaError`, and `GlassflowError` where the registry does not answer.
        """
        if not value:
            raise NotDecodedError(WITHOUT_VALUE)
        schema_id, content = _split(value, headers) if self.has_schema_id else (_OWN, value)
        if self.own is not None:
            schema_id = _OWN
        if schema_id not in self.parsed:
            self.parsed[schema_id] = _parse(self._schema(schema_id), schema_id)
        return schema_id, _decode(content, self.parsed[schema_id])

    def _schema(self, schema_id: str) -> RegisteredSchema | None:
        if self.registry is None:
            return RegisteredSchema("AVRO", self.own or "", ())
        return self.registry.schema(schema_id)


def _split(value: bytes, headers: Headers) -> tuple[str, bytes]:
    """Return the schema's id, as text, and the encoded record; raises `NotDecodedError` where there is none."""
    found = split_schema_id(value, headers)
    if found is None:
        raise NotDecodedError(WITHOUT_ID)
    return found.schema_id, found.content


def _parse(schema: RegisteredSchema | None, schema_id: str) -> AvroSchema:
    if schema is None:
        raise NotDecodedError(UNKNOWN_ID)
    told = f"schema {schema_id} of the registry" if schema_id else "sources[0].schema.file"
    if schema.type != "AVRO":
        raise UnusableSchemaError(f"{told} is of type {schema.type}, not AVRO; correct the source's format")
    named: dict[str, Any] = {}
    try:
        for text in schema.references:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (ValueError, TypeError, SchemaParseException) as error:
        raise UnusableSchemaError(f"{told} is no Avro schema: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise UnusableSchemaError(f"{told} is not that of a record, so it has no fields")
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
