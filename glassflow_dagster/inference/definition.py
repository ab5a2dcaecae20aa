"""Write the proposed v3 definition in YAML, with comments on the sample and the reasons for each choice."""

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassflow_dagster.definition.yaml_text import write_flow
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.columns import ColumnChoice, choose_column, is_time_column
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.fields import Field, Fields, collect_fields, declared_fields
from glassflow_dagster.inference.given_schema import GivenSchema
from glassflow_dagster.inference.json_events import FROM_A_REGISTRY
from glassflow_dagster.inference.keys import Key, key_candidates
from glassflow_dagster.inference.record_keys import RecordKeys

DEDUP_WINDOW = "1h"
ARRIVAL_COLUMN = "ingested_at"
REGISTRY_URL = "http://127.0.0.1:8081"
# Greatest column at which comments are aligned, so that one long name does not move all of them.
COMMENT_COLUMN = 80
COMMENT_WIDTH = 110  # characters of a line of comment
# Field names listed in a comment.
NAMES_SHOWN = 5
_CONTENT = {
    "json": "JSON objects",
    "avro": "Avro records, whose schema has the types",
    "protobuf": "Protobuf messages, whose schema has the types",
}
_MIN_ID, _MAX_ID = 5, 100  # characters of a pipeline_id
# SQL keywords, which ClickHouse does not take for a column name without backquotes.
_RESERVED = frozenset({
    "all", "and", "any", "array", "as", "asc", "between", "by", "case", "cast", "date", "desc",
    "distinct", "else", "end", "except", "false", "from", "global", "group", "having", "if", "in", "inf",
    "interval", "is", "join", "like", "limit", "nan", "not", "null", "offset", "on", "or", "order",
    "select", "set", "then", "timestamp", "true", "tuple", "union", "using", "when", "where", "with",
})  # fmt: skip


@dataclass(frozen=True)
class SampledTopic:
    """Where a sample comes from: the topic, the estimated number of its messages, and the number of its partitions."""

    topic: str
    estimated_messages: int
    partitions: int


@dataclass(frozen=True)
class Connections:
    """The `connection_params` of Kafka and of ClickHouse, `schema_registry`, and a comment on each ('' for none).

    registry: None, or empty, where the caller names none.
    """

    kafka: dict[str, Any]
    clickhouse: dict[str, Any]
    kafka_remark: str = ""
    clickhouse_remark: str = ""
    registry: dict[str, Any] | None = None
    registry_remark: str = ""


@dataclass(frozen=True)
class Encoding:
    """How messages are encoded, beyond what their events say.

    given: the schema that the values were read with; None for that of a registry, or JSON. keys: the fields of Kafka's
    keys; None where they have none.
    """

    given: GivenSchema | None = None
    keys: RecordKeys | None = None


@dataclass(frozen=True)
class _Column:
    field: Field
    name: str
    choice: ColumnChoice


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
    objects, declared = events.objects, events.declared
    fields = collect_fields(objects) if declared is None else declared_fields(objects, declared)
    if not fields.declared:
        raise GlassflowError(
            f"topic {sampled.topic!r}: none of the {events.messages:,} messages read has a field that a definition can "
            "name; check the messages, and write the fields by hand"
        )
    keys = key_candidates(fields.declared, events.objects, sampled.topic)
    if encoding.keys:
        fields = replace(fields, declared=(*fields.declared, *encoding.keys.fields))
    columns = _columns(fields.declared)
    # The best candidate, if nearly every event has a value of its own.
    key = keys[0] if keys and keys[0].is_unique else None
    pipeline = pipeline_id or pipeline_name(sampled.topic)
    lines = [
        *_heading(sampled, events),
        "version: v3",
        f"pipeline_id: {_scalar(pipeline)}",
        *_source(sampled.topic, events, fields, connections, encoding),
        *_dedup(sampled.topic, key, keys),
        *_sink(sampled.topic, columns, key, connections),
    ]
    return "\n".join(lines) + "\n"


def pipeline_name(topic: str) -> str:
    """Return a valid pipeline_id for a topic: its letters, digits, "-" and "_", at most _MAX_ID characters."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", topic).strip("_-")[:_MAX_ID]
    # A short topic gets a suffix, since a pipeline_id has at least _MIN_ID characters.
    return name if len(name) >= _MIN_ID else f"{name}_events".lstrip("_")


def _heading(sampled: SampledTopic, events: Events) -> list[str]:
    """Return the comment at the top of the definition: what was read, what was skipped, and what to check.

    pipeline: the proposed pipeline_id.
    """
    partitions = f"{sampled.partitions} partition{'s' if sampled.partitions > 1 else ''}"
    read_count, estimated = events.messages, sampled.estimated_messages
    sample = f"all {read_count:,}" if read_count >= estimated else f"{read_count:,} of about {estimated:,}"
    where = "" if read_count >= estimated else ", from the beginning and the end of each"
    content = _CONTENT[events.format]
    skipped_text = f" The rest become dead letters: {events.skipped_text}." if events.skipped else ""
    return [
        *_comment(
            f"Proposed for topic {_comment_name(sampled.topic)} after reading {sample} messages ({partitions}{where})."
        ),
        *_comment(f"{len(events.objects):,} of them are {content}.{skipped_text}"),
        *_comment(
            "Review it: a field that was always present may be missing in messages that were not read; such a "
            "message becomes a dead letter, unless the field has required: false."
        ),
    ]


def _source(
    topic: str,
    events: Events,
    fields: Fields,
    connections: Connections,
    encoding: Encoding,
) -> Iterator[str]:
    """Yield the lines of `sources`, with the fields and what the sample shows of them."""
    yield "sources:"
    yield "  - type: kafka"
    yield f"    source_id: {_scalar(topic)}"
    yield from _connection(connections.kafka, connections.kafka_remark)
    yield f"    topic: {_scalar(topic)}"
    yield from _schema(encoding.given) if encoding.given else _registry(events, connections)
    if encoding.keys:
        yield f"    key_format: {encoding.keys.format}  # the fields of the keys are those that begin with _key."
        # Without a registry, keys of JSON have no schema id in any case.
        if events.with_schema and not encoding.given and not encoding.keys.with_schema:
            yield "    key_schema: {wire_format: none}"
    yield "    schema_fields:"
    entries = []
    for field in fields.declared:
        entry: dict[str, Any] = {"name": field.name, "type": field.type}
        if not field.required:
            entry["required"] = False
        elif events.with_schema:
            entry["required"] = True  # left out it means false where there is a schema
        entries.append((f"      - {write_flow(entry)}", _field_remark(field)))
    yield from _with_comments(entries)
    for name, count in fields.not_objects.items():
        yield from _comment(
            f"{_comment_name(name)} is not an object in {count:,} events; its fields count as missing there.", 6
        )
    if fields.left_out:
        yield from _comment(f"Not declared because of their names or number: {_comment_names(fields.left_out)}.", 6)


def _registry(events: Events, connections: Connections) -> Iterator[str]:
    """Yield the lines of the format and of `schema_registry`, for messages with a schema's id."""
    if not events.with_schema:
        return
    if events.declared is not None:
        yield f"    format: {events.format}"
        remark = f"  # {connections.registry_remark}" if connections.registry_remark else ""
    else:
        remark = "  # the messages have a schema's id; the registry itself is not queried"
    yield f"    schema_registry:{remark}"
    for key, value in (connections.registry or {"url": REGISTRY_URL}).items():
        yield f"      {key}: {_scalar(value)}"


def _schema(given: GivenSchema) -> Iterator[str]:
    """Yield the lines of the format and of `schema`, for messages that all have one schema."""
    yield f"    format: {given.format}"
    yield "    schema:"
    for key, value in given.keys().items():
        remark = "  # or the path from the definition's folder" if key == "file" else ""
        yield f"      {key}: {_scalar(value)}{remark}"


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


def _dedup(topic: str, key: Key | None, keys: Sequence[Key]) -> Iterator[str]:
    """Yield the lines of the `dedup` transform; without a key, as a comment to fill in.

    keys: all candidates, the best first. key: the best one, None when no candidate is nearly unique.
    """
    if key:
        yield "transforms:"
        yield from _comment(f"The first event of each {_comment_name(key.name)} is kept: {key.text}.", 2)
        # The best one is `key` itself.
        for other_key in keys[1:]:
            if other_key.is_unique:
                yield from _comment(f"Or {_comment_name(other_key.name)}: {other_key.text}.", 2)
        yield "  - type: dedup"
        yield f"    source_id: {_scalar(topic)}"
        config = write_flow({"key": key.name, "time_window": DEDUP_WINDOW})
        yield f"    config: {config}  # the window: how long a producer may take to send an event again"
        return
    yield "# No field looks like the key of an event, so every event is written."
    for other_key in keys:
        yield from _comment(f"{_comment_name(other_key.name)} is shared by different events: {other_key.text}.")
    yield "# To deduplicate, name the field (or several: keys: [a, b]) that an event has when it is sent again:"
    yield "# transforms:"
    yield "#   - type: dedup"
    yield f"#     source_id: {_scalar(topic)}"
    yield f"#     config: {{key: FIELD, time_window: {DEDUP_WINDOW}}}"


def _sink(topic: str, columns: Sequence[_Column], key: Key | None, connections: Connections) -> Iterator[str]:
    """Yield the lines of `sink`, with the mapping and the table to create.

    The time of the batch gets a column of its own, unless a field of that name is mapped.
    """
    yield "sink:"
    yield "  type: clickhouse"
    # Less indented than in `sources`, whose items are in a list.
    yield from (line.removeprefix("  ") for line in _connection(connections.clickhouse, connections.clickhouse_remark))
    yield f"  table: {_scalar(re.sub(r'[^A-Za-z0-9_]', '_', topic))}"
    yield "  max_batch_size: 10000  # rows of one insert at most"
    yield "  max_delay_time: 1s  # a smaller batch is inserted after this time"
    yield "  mapping:"
    entries = [
        (_mapping_entry(column.field.name, column.name, column.choice.type), column.choice.remark) for column in columns
    ]
    if "_batch_time" not in {column.field.name for column in columns}:
        arrival = _unused_name(ARRIVAL_COLUMN, {column.name for column in columns})
        entries.append((_mapping_entry("_batch_time", arrival, "DateTime64(3)"), "time of the batch"))
    yield from _with_comments(entries)
    yield "  create_table:  # used if the table does not exist"
    yield "    engine: MergeTree"
    yield f"    order_by: {_scalar(_order_by(columns, key))}  # what queries select by; cannot be changed later"


def _order_by(columns: Sequence[_Column], key: Key | None) -> str:
    """Return the ORDER BY of the table: the key, else the first required date or time.

    `tuple()`, which is no order, when there is neither.
    """
    if key:
        return next(_sql_name(column.name) for column in columns if column.field.name == key.name)
    times = (column for column in columns if column.field.required and is_time_column(column.choice.type))
    return next((_sql_name(column.name) for column in times), "tuple()")


def _columns(fields: Sequence[Field]) -> list[_Column]:
    """Return a column for each field, its name unused by those before it.

    Characters other than letters, digits and "_" become "_": dots mean a nested structure to ClickHouse.
    """
    used: set[str] = set()
    columns = []
    for field in fields:
        name = _unused_name(re.sub(r"\W", "_", field.name), used)
        used.add(name)
        columns.append(_Column(field, name, choose_column(field)))
    return columns


def _unused_name(name: str, used: set[str]) -> str:
    """Return the name, or name_2, name_3 ... when it is used already."""
    # Enough numbers: one of these names is not among the used ones.
    numbered = (f"{name}_{number}" for number in range(2, len(used) + 3))
    return next(candidate for candidate in (name, *numbered) if candidate not in used)


def _mapping_entry(name: str, column: str, kind: str) -> str:
    return f"    - {write_flow({'name': name, 'column_name': column, 'column_type': kind})}"


def _connection(parameters: dict[str, Any], remark: str) -> Iterator[str]:
    """Yield the lines of `connection_params`, with the remark as a comment."""
    yield "    connection_params:" + (f"  # {remark}" if remark else "")
    for key, value in parameters.items():
        yield f"      {key}: {_scalar(value)}"


def _comment(text: str, indent: int = 0) -> list[str]:
    """Return a comment as lines of at most COMMENT_WIDTH characters."""
    start = f"{' ' * indent}# "
    return textwrap.wrap(
        text,
        COMMENT_WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _with_comments(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield lines, each with its comment ('' for none), the comments aligned in one column."""
    width = min(max(len(line) for line, _ in entries), COMMENT_COLUMN)
    for line, comment in entries:
        yield f"{line:<{width}}  # {comment}" if comment else line


def _scalar(value: Any) -> str:
    """Return a value as YAML on one line, quoted where its characters need it."""
    return write_flow([value])[1:-1]


def _sql_name(column: str) -> str:
    """Return a column name for SQL, in backquotes where it is no plain identifier."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column) and column.lower() not in _RESERVED
    return column if plain else f"`{column}`"


def _comment_name(name: str) -> str:
    """Return a name for a comment: in JSON quotes where it could break the line."""
    return name if re.fullmatch(r"[\w.-]+", name) else json.dumps(name)


def _comment_names(names: Sequence[str]) -> str:
    """Return names for a comment, the first NAMES_SHOWN of them and the number of the rest."""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(_comment_name(name) for name in names[:NAMES_SHOWN]) + more
