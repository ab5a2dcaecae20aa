"""Write the proposed v3 definition in YAML, with comments on the sample and the reasons for each choice."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassflow_dagster.definition.yaml_text import write_flow
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.commented_yaml import Comments, comment, write_commented
from glassflow_dagster.inference.definition import BATCH_TIME, definition_of
from glassflow_dagster.inference.draft import WINDOW, PipelineDraft, Side
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.fields import Field, Fields
from glassflow_dagster.inference.given_schema import GivenSchema
from glassflow_dagster.inference.json_events import FROM_A_REGISTRY
from glassflow_dagster.inference.keys import Key, key_candidates
from glassflow_dagster.inference.record_keys import RecordKeys
from glassflow_dagster.inference.servers import Connections
from glassflow_dagster.inference.topic_sample import SampledTopic, TopicSample, describe, fields_of

REGISTRY_URL = "http://127.0.0.1:8081"
# Field names listed in a comment.
NAMES_SHOWN = 5
_CONTENT = {
    "json": "JSON objects",
    "avro": "Avro records, whose schema has the types",
    "protobuf": "Protobuf messages, whose schema has the types",
}


@dataclass(frozen=True)
class Encoding:
    """How messages are encoded, beyond what their events say.

    given: the schema that the values were read with; None for that of a registry, or JSON.
    keys: the fields of Kafka's keys; None where they have none.
    """

    given: GivenSchema | None = None
    keys: RecordKeys | None = None


def propose(
    sampled: SampledTopic,
    events: Events,
    connections: Connections,
    pipeline_id: str | None = None,
    encoding: Encoding = Encoding(),
) -> str:
    """Return the text of a definition for a topic; raises `GlassflowError` when the sample has no field to declare."""
    if not events.objects:
        remedy = "a definition is proposed for JSON objects only"
        if FROM_A_REGISTRY in events.skipped:
            remedy = "of Avro or Protobuf, name the registry: --schema-registry URL"
        if given := encoding.given:
            remedy = "correct the schema, its message or --with-schema-id"
        kind = f"a record of {given.file}" if given else "a JSON object"
        raise GlassflowError(
            f"topic {sampled.topic!r}: none of the {events.messages:,} messages read is {kind} "
            f"({events.skipped_text}); {remedy}"
        )
    fields = fields_of(events)
    if not fields.declared:
        raise GlassflowError(
            f"topic {sampled.topic!r}: none of the {events.messages:,} messages read has a field that a definition can "
            "name; check the messages, and write the fields by hand"
        )
    keys = key_candidates(fields.declared, events.objects, sampled.topic)
    if encoding.keys:
        fields = replace(fields, declared=(*fields.declared, *encoding.keys.fields))
    # The best candidate, if nearly every event has a value of its own.
    key = keys[0] if keys and keys[0].is_unique else None
    side = Side(
        describe(sampled, events, fields.declared),
        registry=_registry(events, connections, encoding),
        key=(key.name,) if key else (),
        schema=encoding.given.keys() if encoding.given else None,
        key_encoding=_key_encoding(events, encoding),
    )
    definition = definition_of(
        PipelineDraft(
            kafka=connections.kafka, left=side, clickhouse=connections.clickhouse, pipeline_id=pipeline_id or ""
        )
    )
    return write_commented(definition, _comments(events, fields, side, keys, connections))


def _registry(events: Events, connections: Connections, encoding: Encoding) -> dict[str, Any] | None:
    """Return `schema_registry`, for messages with a schema's id whose schema is in no file; None for others."""
    if encoding.given or not events.with_schema:
        return None
    return connections.registry or {"url": REGISTRY_URL}


def _key_encoding(events: Events, encoding: Encoding) -> dict[str, Any]:
    """Return `key_format` and `key_schema`; empty where no field of a key is declared."""
    if not encoding.keys:
        return {}
    # Without a registry, keys of JSON have no schema id in any case.
    without_id = events.with_schema and not encoding.given and not encoding.keys.with_schema
    return {"key_format": encoding.keys.format, **({"key_schema": {"wire_format": "none"}} if without_id else {})}


def _comments(events: Events, fields: Fields, side: Side, keys: Sequence[Key], connections: Connections) -> Comments:
    """Return the comments of a definition. keys: all candidates, the best first."""
    registry_remark = "the messages have a schema's id; the registry itself is not queried"
    sample = side.sample.fields
    remarks = {
        **{f"sources[0].schema_fields[{index}]": _field_remark(each) for index, each in enumerate(fields.declared)},
        **{f"sink.mapping[{index}]": each.column.remark for index, each in enumerate(sample)},
    }
    if BATCH_TIME not in {each.name for each in sample}:
        remarks[f"sink.mapping[{len(sample)}]"] = "time of the batch"
    return Comments(
        at_end={
            **remarks,
            "sources[0].connection_params": connections.kafka_remark,
            "sources[0].schema_registry": registry_remark if events.declared is None else connections.registry_remark,
            "sources[0].schema.file": "or the path from the definition's folder",
            "sources[0].key_format": "the fields of the keys are those that begin with _key.",
            "transforms[0].config": "the window: how long a producer may take to send an event again",
            "sink.connection_params": connections.clickhouse_remark,
            "sink.max_batch_size": "rows of one insert at most",
            "sink.max_delay_time": "a smaller batch is inserted after this time",
            "sink.create_table": "used if the table does not exist",
            "sink.create_table.order_by": "what queries select by; cannot be changed later",
        },
        before={
            "version": _heading(side.sample),
            "transforms[0]": list(_key_remarks(keys)),
            "sink": [] if side.key else list(_dedup_to_fill_in(side.topic, keys)),
        },
        after={"sources[0].schema_fields": list(_other_fields(fields))},
    )


def _heading(sample: TopicSample) -> list[str]:
    """Return the comment at the top of the definition: what was read, what was skipped, and what to check."""
    partitions = f"{sample.partitions} partition{'s' if sample.partitions > 1 else ''}"
    is_whole = sample.messages >= sample.estimated
    count = f"all {sample.messages:,}" if is_whole else f"{sample.messages:,} of about {sample.estimated:,}"
    where = "" if is_whole else ", from the beginning and the end of each"
    skipped_text = f" The rest become dead letters: {sample.skipped}." if sample.skipped else ""
    return [
        *comment(
            f"Proposed for topic {_comment_name(sample.topic)} after reading {count} messages ({partitions}{where})."
        ),
        *comment(f"{sample.events:,} of them are {_CONTENT[sample.format]}.{skipped_text}"),
        *comment(
            "Review it: a field that was always present may be missing in messages that were not read; such a "
            "message becomes a dead letter, unless the field has required: false."
        ),
    ]


def _other_fields(fields: Fields) -> Iterator[str]:
    """Yield what the sample shows besides the declared fields, as comments."""
    for name, count in fields.not_objects.items():
        yield from comment(
            f"{_comment_name(name)} is not an object in {count:,} events; its fields count as missing there.", 2
        )
    if fields.left_out:
        yield from comment(f"Not declared because of their names or number: {_comment_names(fields.left_out)}.", 2)


def _field_remark(field: Field) -> str:
    """Return a comment on the field's missing values, nulls and mixed types; '' for none of them."""
    parts = []
    if field.missing or field.nulls:
        counts = [f"{count:,} {name}" for count, name in ((field.missing, "missing"), (field.nulls, "null")) if count]
        parts.append(f"{', '.join(counts)} of {field.events:,}")
    if len(field.types) > 1 and field.declared is None:
        type_counts = ", ".join(f"{count:,} {name}" for name, count in field.types.most_common())
        dead_letters = len(field.values) - len(field.fitting)
        parts.append(f"{type_counts}: {dead_letters:,} {'become' if dead_letters > 1 else 'becomes'} dead letters")
    return "; ".join(parts)


def _key_remarks(keys: Sequence[Key]) -> Iterator[str]:
    """Yield what the sample says of the key, which is the first candidate, and of other ones."""
    for index, key in enumerate(keys):
        if not index:
            yield from comment(f"The first event of each {_comment_name(key.name)} is kept: {key.text}.", 2)
        elif key.is_unique:
            yield from comment(f"Or {_comment_name(key.name)}: {key.text}.", 2)


def _dedup_to_fill_in(topic: str, keys: Sequence[Key]) -> Iterator[str]:
    """Yield the lines of the `dedup` transform as a comment to fill in. keys: all candidates, none nearly unique."""
    yield "# No field looks like the key of an event, so every event is written."
    for key in keys:
        yield from comment(f"{_comment_name(key.name)} is shared by different events: {key.text}.")
    yield "# To deduplicate, name the field (or several: keys: [a, b]) that an event has when it is sent again:"
    yield "# transforms:"
    yield "#   - type: dedup"
    yield f"#     source_id: {write_flow([topic])[1:-1]}"
    yield f"#     config: {{key: FIELD, time_window: {WINDOW}}}"


def _comment_name(name: str) -> str:
    """Return a name for a comment: in JSON quotes where it could break the line."""
    return name if re.fullmatch(r"[\w.-]+", name) else json.dumps(name)


def _comment_names(names: Sequence[str]) -> str:
    """Return names for a comment, the first NAMES_SHOWN of them and the number of the rest."""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(_comment_name(name) for name in names[:NAMES_SHOWN]) + more
