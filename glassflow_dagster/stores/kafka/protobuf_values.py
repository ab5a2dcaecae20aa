"""Decodes Protobuf values outside Spark's tasks, for people and for the search for fields.

A JVM reads them, as in a pipeline (stream/scala/decode/ProtobufReader.scala): Python has no parser of .proto files.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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

# Asks the JVM: a request and its answer, both JSON objects. See ProtobufReader.scala.
Ask = Callable[[str], str]
# Stands for the schema in a definition, which has no id.
_OWN = ""


class MessageName(NamedTuple):
    """A message of a schema: the schema's id ("" for the definition's own), and the message's full name."""

    schema_id: str
    name: str


@dataclass
class ProtobufReader:
    """Decodes values by the schemas of a registry, or by one schema.

    own: a schema's text, in place of the registry's.
    message_type: the message's name; None for the one that a record names, and without that the first of the schema.
    has_schema_id: an id precedes each value, or is in a header.
    """

    ask: Ask
    registry: RegistryReader | None
    own: str | None = None
    message_type: str | None = None
    has_schema_id: bool = True
    _known: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, source: Source, ask: Ask) -> "ProtobufReader":
        """Return the reader of a source's values."""
        registry = RegistryReader(source.schema_registry) if source.schema_registry else None
        schema = source.schema_
        own, message_type = (schema.file, schema.message_type) if schema else (None, None)
        return cls(ask, registry, own, message_type, source.encoding.has_schema_id)

    def decode(self, value: bytes | None, headers: Headers) -> tuple[MessageName, dict[str, Any]]:
        """Return the record's message and the record, with values of JSON in it; NaN and infinite numbers are texts.

        Raises `NotDecodedError`, `UnusableSchemaError`, and `GlassflowError` where the registry does not answer.
        """
        # An empty message is one, too: all of its fields have their defaults.
        if value is None:
            raise NotDecodedError(WITHOUT_VALUE)
        schema_id, content = self._split(value, headers)
        self._require_known(schema_id)
        answer = self._answer(
            schema_id, message_type=self.message_type, value=base64.b64encode(content).decode(),
            has_path=self.has_schema_id,
        )  # fmt: skip
        if "problem" in answer:
            raise NotDecodedError(f"not decoded ({answer['problem']})")
        return MessageName(schema_id, answer["message"]), answer["record"]

    def fields_of(self, message: MessageName) -> dict[str, list[dict[str, Any]]]:
        """Return the fields of a message that was decoded, and of those within it, by name; see ProtobufReader.scala.

        The first one is the message itself.
        """
        described: dict[str, list[dict[str, Any]]] = self._answer(message.schema_id, message=message.name)["messages"]
        return described

    def _split(self, value: bytes, headers: Headers) -> tuple[str, bytes]:
        """Return the schema's id and the message, with the indexes before it that a schema id has."""
        if not self.has_schema_id:
            return _OWN, value
        found = split_schema_id(value, headers)
        if found is None:
            raise NotDecodedError(WITHOUT_ID)
        return (found.schema_id if self.own is None else _OWN), found.path + found.content

    def _require_known(self, schema_id: str) -> None:
        """Tell the JVM a schema, once."""
        if schema_id in self._known:
            return
        schema = self._schema(schema_id)
        told = f"schema {schema_id} of the registry" if schema_id else "schema.file"
        if schema is None:
            raise NotDecodedError(UNKNOWN_ID)
        if schema.type != "PROTOBUF":
            raise UnusableSchemaError(f"{told} is of type {schema.type}, not PROTOBUF; correct the source's format")
        answer = self._answer(schema_id, texts=[*schema.references, schema.text])
        if "problem" in answer:
            raise UnusableSchemaError(f"{told} {answer['problem']}; correct it")
        self._known.add(schema_id)

    def _schema(self, schema_id: str) -> RegisteredSchema | None:
        if self.own is not None:
            return RegisteredSchema("PROTOBUF", self.own, ())
        return self.registry.schema(schema_id) if self.registry else None

    def _answer(self, schema_id: str, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.ask(json.dumps({"schema": schema_id, **request})))
        return answer
