"""A source: a topic and the fields of its events.

This project's extensions: `topics`, `topic_pattern`, `start`, `consumer_group`, `isolation`, `tombstones`,
`schema.wire_format`, `key_format`, `key_schema`, `schema_fields[].required` and `.default`.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from glassflow_dagster.definition.model.connections import KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.model.fields import LOWER_CASE, FieldType, Part, Start, Text, empty_means
from glassflow_dagster.definition.model.otlp import SignalName, attribute_path, fields_of, signal_of
from glassflow_dagster.definition.model.types import FIELD_KINDS, FieldKind

# Metadata for the mapping -> its kind: Kafka's, named as by ClickHouse's Kafka engine, and the batch time.
METADATA_FIELDS: dict[str, FieldKind] = {
    "_topic": "string",
    "_partition": "int",
    "_offset": "int",
    "_timestamp": "float",
    "_key": "string",
    "_headers": "map",
    "_batch_time": "float",
}

# How the names of fields of the key begin: `_key.id` is the field `id` of it.
KEY_PREFIX = "_key."


class SchemaField(Part):
    """A declared field of events; a dotted name is looked up literally, then as a path into nested objects."""

    name: Text
    type: FieldType
    required: bool = Field(default=True, description="false: the field may be missing or null, and becomes NULL")
    default: bool | int | float | str | None = Field(
        default=None, description="the value of a field that is missing or null; makes the field optional"
    )

    @property
    def kind(self) -> FieldKind:
        """The kind of JSON value that the field must have."""
        return FIELD_KINDS[self.type]

    @property
    def needed(self) -> bool:
        """True when an event without this field is a dead letter."""
        return self.required and self.default is None

    @property
    def is_of_key(self) -> bool:
        """True when the field is looked up in the record's key; its name there is without `KEY_PREFIX`."""
        return self.name.startswith(KEY_PREFIX)


class SourceSchema(Part):
    """The schema of the records of a topic, in the format's own language."""

    file: Text | None = Field(
        default=None, description="the schema's text: an Avro schema, or a .proto file; ${file:PATH} reads a file"
    )
    message_type: Text | None = Field(
        default=None, description="the name of Protobuf's message; by default the one that a record names, or the first"
    )
    wire_format: Literal["confluent", "none"] = Field(
        default="confluent", description="none: no schema id is before the event; confluent: it begins with one"
    )


def with_schema_fields(source: Any) -> Any:
    """Return a raw source with `schema_fields` in place of `schema.fields`, which GlassFlow's SDK writes from 4.1 on.

    `schema.parsed_fields` is what its server adds to an answer. Any other value is returned unchanged.
    """
    schema = source.get("schema") if isinstance(source, dict) else None
    if not isinstance(schema, dict) or not {"fields", "parsed_fields"} & schema.keys() or source.get("schema_fields"):
        return source
    rest = {key: value for key, value in schema.items() if key not in {"fields", "parsed_fields"} and value is not None}
    moved = {key: value for key, value in source.items() if key != "schema"}
    if schema.get("fields") is not None:
        moved["schema_fields"] = schema["fields"]
    return {**moved, "schema": rest} if rest else moved


@dataclass(frozen=True)
class Encoding:
    """How the values, or the keys, of a source's records are encoded.

    format: its name, as in `Source.format`.
    schema: the definition's own, None without one.
    of_registry: whether the schemas are in the source's registry.
    part: what of a record it is, as the JVM's decoders call it.
    """

    format: str
    schema: SourceSchema | None
    of_registry: bool
    part: Literal["value", "key"] = "value"

    @property
    def has_schema(self) -> bool:
        """True when records cannot be read without the schema that they are written with."""
        return self.format in ("avro", "protobuf")

    @property
    def has_schema_id(self) -> bool:
        """True when a schema id in Confluent's wire format precedes each event, or is in a header."""
        if self.schema is not None:
            return self.schema.wire_format == "confluent"
        return self.of_registry


class Source(Part):
    """One topic, or several of the same events, and the fields of these events."""

    type: Annotated[Literal["kafka", "otlp.logs", "otlp.metrics", "otlp.traces"], LOWER_CASE]
    source_id: Text
    connection_params: KafkaConnection
    topic: Text | None = None
    # Excluded from dumps and digests when it is empty.
    topics: tuple[Text, ...] = Field(
        default=(), exclude_if=lambda topics: not topics, description="several topics, in place of topic"
    )
    # Excluded from dumps and digests when there is none. A driver sets `topics` beside it, to those that it reads.
    topic_pattern: Text | None = Field(
        default=None, exclude_if=lambda pattern: pattern is None,
        description="a regular expression (RE2) for the whole names of topics, in place of topic",
    )  # fmt: skip
    schema_fields: Annotated[tuple[SchemaField, ...], Field(min_length=1)]
    schema_version: str = "1"
    schema_registry: SchemaRegistry | None = None
    format: Annotated[
        Literal["json", "json_schema", "avro", "protobuf", "otlp_proto", "otlp_json"], empty_means("json")
    ] = "json"
    # The key is `schema`, which is a method of pydantic's models.
    schema_: SourceSchema | None = Field(default=None, alias="schema")
    # Excluded from dumps and digests when there is none, as is the next one.
    key_format: Literal["json", "avro", "protobuf"] | None = Field(
        default=None, exclude_if=lambda key_format: key_format is None,
        description="the format of the records' keys, whose fields are declared as _key.NAME",
    )  # fmt: skip
    key_schema: SourceSchema | None = Field(
        default=None, exclude_if=lambda schema: schema is None,
        description="the schema of the keys, for avro and protobuf; with wire_format: none no schema id precedes a key",
    )  # fmt: skip
    consumer_group_initial_offset: Annotated[Literal["earliest", "latest"], empty_means("earliest")] = "earliest"
    start: Start | None = Field(
        default=None,
        description="where the first start begins: earliest, latest, committed, or a time such as 2026-01-31T00:00:00Z",
    )
    consumer_group: Text | None = Field(
        default=None, description="consumer group for `start: committed`; by default GlassFlow's own for the pipeline"
    )
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    tombstones: Literal["dead_letter", "drop"] = Field(
        default="dead_letter", description="what becomes of records without a value; dropped ones count as filtered"
    )

    @model_validator(mode="before")
    @classmethod
    def _take_fields_of_schema(cls, raw: Any) -> Any:
        """Accept the fields where GlassFlow's SDK writes them: `schema.fields`."""
        return with_schema_fields(raw)

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics that are read, in the order of their records within a micro-batch.

        Empty for a pattern, unless the definition is of a driver, which has looked them up.
        """
        return self.topics if self.topic is None else (self.topic,)

    @property
    def signal(self) -> SignalName | None:
        """The signal of OpenTelemetry whose export requests the records are; None for records of one event each."""
        return signal_of(self.type)

    @property
    def has_fields_of_signal(self) -> bool:
        """Whether the fields are such of the signal's events, and attributes of them.

        They need not be all: an earlier version may have stored the definition, which knew fewer.
        """
        attributes = [field.name for field in self.schema_fields if len(attribute_path(field.name)) > 1]
        fixed = tuple(SchemaField.model_validate(field) for field in fields_of(self.signal or "", attributes))
        return {*self.schema_fields} <= {*fixed}

    @property
    def encoding(self) -> Encoding:
        """The encoding of the values."""
        return Encoding(self.format, self.schema_, of_registry=self.schema_registry is not None)

    @property
    def key_encoding(self) -> Encoding | None:
        """The encoding of the keys; None where no field is of the key.

        The registry is that of the values, unless the keys have no schema id.
        """
        if self.key_format is None:
            return None
        has_id = self.key_schema is None or self.key_schema.wire_format == "confluent"
        of_registry = self.schema_registry is not None and has_id
        return Encoding(self.key_format, self.key_schema, of_registry, part="key")

    @property
    def reads_registry(self) -> bool:
        """True when schemas of values or keys are fetched from the registry."""
        encodings = [self.encoding, *([self.key_encoding] if self.key_encoding else [])]
        return any(encoding.has_schema and encoding.of_registry for encoding in encodings)

    @property
    def fields(self) -> tuple[SchemaField, ...]:
        """The declared fields with their effective `required`.

        With a schema registry a field is required only when the definition sets `required: true`, since GlassFlow
        leaves it to the schema which fields a record has.
        """
        if self.schema_registry is None:
            return self.schema_fields
        return tuple(
            field if "required" in field.model_fields_set else field.model_copy(update={"required": False})
            for field in self.schema_fields
        )
