"""What is learnt of a topic from some of its records: fields, candidates for the key, and records to show and to try.

Only what later steps show is kept: a page keeps a sample for each pipeline that is being made.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glassflow_dagster.definition.model.connections import KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.columns import ColumnChoice, choose_column, snake_case
from glassflow_dagster.inference.events import Event, Events
from glassflow_dagster.inference.fields import Field, Fields, collect_fields, declared_fields
from glassflow_dagster.inference.formats import read_events
from glassflow_dagster.inference.json_events import FROM_A_REGISTRY
from glassflow_dagster.inference.keys import Key, key_candidates
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.samples import Sample, sample_newest, sample_records
from glassflow_dagster.stores.kafka.schema_registry import RegistryReader

MESSAGES = 1000
READ_SECONDS = 10.0
# Records that are kept, for previews, and the bytes of their values together.
_KEPT, _KEPT_BYTES = 25, 256 * 1024
_EXAMPLES, _EXAMPLE_LENGTH = 3, 60
_ID = re.compile(r"(?:^|_)(?:id|uuid|guid|key)$")


@dataclass(frozen=True)
class SampledField:
    """A field as the sample shows it.

    column: proposed for it.
    examples: some different values as text.
    """

    name: str
    type: str
    kind: FieldKind
    required: bool
    column: ColumnChoice
    examples: tuple[str, ...]

    @property
    def declaration(self) -> dict[str, Any]:
        """Its entry of `schema_fields`."""
        return {"name": self.name, "type": self.type, **({} if self.required else {"required": False})}


@dataclass(frozen=True)
class SampledTopic:
    """Where a sample comes from: the topic, the estimated number of its messages, and the number of its partitions."""

    topic: str
    estimated_messages: int
    partitions: int


@dataclass(frozen=True)
class TopicSample:
    """A sample of a topic.

    messages: read, of about `estimated`.
    skipped: those that are no events, and why.
    """

    topic: str
    partitions: int
    messages: int
    estimated: int
    events: int
    skipped: str
    format: str
    with_schema: bool
    fields: tuple[SampledField, ...]
    keys: tuple[Key, ...]
    records: tuple[Record, ...]

    @property
    def kinds(self) -> dict[str, FieldKind]:
        """The kinds of the fields by name."""
        return {field.name: field.kind for field in self.fields}


def newest_records(connection: KafkaConnection, topic: str, limit: int) -> tuple[Record, ...]:
    """Return some of the newest records of a topic; raises `GlassflowError`, also for an empty or missing topic."""
    found = sample_newest(connection, topic, limit, READ_SECONDS)
    # It says why there is none; or only the beginning of the topic has records.
    return (found or sample_records(connection, topic, limit, READ_SECONDS).records)[-limit:]


def read_topic(connection: KafkaConnection, topic: str, registry: SchemaRegistry | None) -> TopicSample:
    """Read messages of a topic; raises `GlassflowError` where there are none, or none with a field."""
    return sample_of(topic, sample_records(connection, topic, MESSAGES, READ_SECONDS), registry)


def sample_of(topic: str, sample: Sample, registry: SchemaRegistry | None) -> TopicSample:
    """Return what records of a topic show; raises `GlassflowError` where none has a field."""
    events = _events(sample.records, registry)
    fields = fields_of(events).declared
    if not fields:
        raise GlassflowError(_why_no_field(topic, events))
    return describe(SampledTopic(topic, sample.about, sample.partitions), events, fields, _kept(sample.records))


def describe(
    sampled: SampledTopic, events: Events, fields: Sequence[Field], records: tuple[Record, ...] = ()
) -> TopicSample:
    """Return what events of a topic show.

    fields: of the events, and of their keys.
    records: those to keep.
    """
    return TopicSample(
        topic=sampled.topic, partitions=sampled.partitions, messages=events.messages,
        estimated=sampled.estimated_messages, events=len(events.objects), skipped=events.skipped_text,
        format=events.format, with_schema=events.with_schema, fields=tuple(map(_sampled, fields)),
        keys=_candidates(fields, events.objects, sampled.topic), records=records,
    )  # fmt: skip


def read_values(
    connection: KafkaConnection, topic: str, registry: SchemaRegistry | None, names: Sequence[str]
) -> list[tuple[tuple[Any, ...], Event]]:
    """Return for each sampled event its values of these fields (None where one is missing), and the event."""
    sample = sample_records(connection, topic, MESSAGES, READ_SECONDS)
    objects = _events(sample.records, registry).objects
    return [(tuple(value_at(event, name) for name in names), event) for event in objects]


def value_at(event: Mapping[str, Any], name: str) -> Any:
    """Return an event's value at a name, literally or as a dotted path; None where there is none."""
    if name in event:
        return event[name]
    head, dot, rest = name.partition(".")
    inner = event.get(head) if dot else None
    return value_at(inner, rest) if isinstance(inner, dict) else None


def _events(records: Sequence[Record], registry: SchemaRegistry | None) -> Events:
    return read_events(records, RegistryReader(registry) if registry else None, lambda _: None)


def fields_of(events: Events) -> Fields:
    """Return the fields of events: those of their schema, else those that they show."""
    if events.declared is not None:
        return declared_fields(events.objects, events.declared)
    return collect_fields(events.objects)


def _why_no_field(topic: str, events: Events) -> str:
    remedy = (
        "only JSON objects, and Avro and Protobuf with a schema registry, can be read here; with a schema in a file, "
        "glassflow-dagster infer TOPIC --schema FILE proposes a definition for the folder of pipelines"
    )
    if FROM_A_REGISTRY in events.skipped:
        remedy = "they begin with the id of a schema: give the address of the schema registry"
    return (
        f"topic {topic!r}: none of the {events.messages:,} messages read has a field ({events.skipped_text}); {remedy}"
    )


def _candidates(fields: Sequence[Field], objects: Sequence[Event], topic: str) -> tuple[Key, ...]:
    """Return the candidates for the key, the best first: those of `infer`, then other unique scalar fields."""
    found = key_candidates(fields, objects, topic)
    named = {key.name for key in found}
    different = len({json.dumps(event, sort_keys=True, default=str) for event in objects})
    others = [
        Key(field.name, len({str(value) for value in field.values}), len(objects), different)
        for field in fields
        if field.name not in named and field.kind in {"string", "int", "uint"} and field.required
    ]
    return (*found, *(key for key in others if key.is_unique))


def is_id(name: str) -> bool:
    """Return whether a field is named like an id."""
    return bool(_ID.search(snake_case(name)))


def _sampled(field: Field) -> SampledField:
    examples = dict.fromkeys(_short(value) for value in field.values[:200])
    return SampledField(
        field.name, field.type, field.kind, field.required, choose_column(field), tuple(examples)[:_EXAMPLES]
    )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _EXAMPLE_LENGTH else f"{text[: _EXAMPLE_LENGTH - 1]}…"


def _kept(records: Sequence[Record]) -> tuple[Record, ...]:
    """Return some records, the first and the last ones: both ends show how events have changed."""
    half = _KEPT // 2
    chosen = records if len(records) <= _KEPT else (*records[:half], *records[half - _KEPT :])
    kept, size = [], 0
    for record in chosen:
        size += len(record.value or b"")
        if size > _KEPT_BYTES:
            break
        kept.append(record)
    return tuple(kept)
