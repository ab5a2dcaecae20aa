"""The keys in a sample of messages, where they are objects with fields."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from glassflow_dagster.definition.model.source import KEY_PREFIX
from glassflow_dagster.inference.events import Event
from glassflow_dagster.inference.fields import Field, collect_fields, declared_fields
from glassflow_dagster.inference.json_events import FROM_A_REGISTRY, read_json_events
from glassflow_dagster.inference.schema_events import read_avro_events
from glassflow_dagster.stores.kafka.avro_values import AvroReader
from glassflow_dagster.stores.kafka.confluent_wire_format import KEY_ID_HEADER, VALUE_ID_HEADER
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.schema_registry import RegistryReader
from glassflow_dagster.stores.kafka.schema_values import UnusableSchemaError


@dataclass(frozen=True)
class RecordKeys:
    """The fields of the keys, by their names in a definition, and how the keys are encoded.

    with_schema: a schema id precedes each key.
    """

    format: Literal["json", "avro"]
    with_schema: bool
    fields: tuple[Field, ...]


def read_keys(records: Sequence[Record], registry: RegistryReader | None, *, may_have_ids: bool) -> RecordKeys | None:
    """Return the keys of messages; None unless all keys are JSON objects, or Avro records of the registry.

    A message without a key counts as one whose key has no field. may_have_ids: whether keys with a schema id are read:
    a definition has one registry for values and keys, so only where its values have ids of a registry, too. Raises
    `GlassflowError` where the registry does not answer.
    """
    keyed = [_as_value(record) for record in records if record.key is not None]
    keys = read_json_events(keyed)
    if registry is not None and keys.skipped[FROM_A_REGISTRY] == keys.messages:
        try:
            keys = read_avro_events(keyed, AvroReader(registry))
        except UnusableSchemaError:  # of one text or number, or of Protobuf
            return None
    if not keys.objects or keys.skipped or (keys.with_schema and not may_have_ids):
        return None
    objects: list[Event] = [*keys.objects, *({} for _ in range(len(records) - len(keyed)))]
    found = collect_fields(objects) if keys.declared is None else declared_fields(objects, keys.declared)
    fields = tuple(replace(field, name=f"{KEY_PREFIX}{field.name}") for field in found.declared)
    return RecordKeys("json" if keys.declared is None else "avro", keys.with_schema, fields) if fields else None


def _as_value(record: Record) -> Record:
    """Return a record whose value is the key, with the key's schema id, so that what reads values reads it."""
    ids = tuple((VALUE_ID_HEADER, content) for name, content in record.headers if name == KEY_ID_HEADER)
    return replace(record, value=record.key, headers=ids)
