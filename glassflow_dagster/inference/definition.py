"""The proposal as a v3 definition in YAML, with comments that say what was seen and why it proposes what it does."""

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from glassflow_dagster.config.model.types import declared_as
from glassflow_dagster.config.yaml_text import write_flow
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.columns import ColumnChoice, choose_column, is_time
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.fields import Field, Fields, observe
from glassflow_dagster.inference.json_events import FROM_A_REGISTRY
from glassflow_dagster.inference.keys import Key, candidates

WINDOW = "1h"
ARRIVAL = "ingested_at"
REGISTRY = "http://127.0.0.1:8081"
# Comments start here at the latest, so that one long name does not move all of them.
COMMENT_COLUMN = 80
WIDTH = 110  # letters of a line of comment
# Of names that are only told of.
NAMES_SHOWN = 5
_MIN_ID, _MAX_ID = 5, 100  # letters of a pipeline_id
# Words that would not be read as a column's name where they stand alone.
_RESERVED = frozenset({
    "all", "and", "any", "array", "as", "asc", "between", "by", "case", "cast", "date", "desc",
    "distinct", "else", "end", "except", "false", "from", "global", "group", "having", "if", "in", "inf",
    "interval", "is", "join", "like", "limit", "nan", "not", "null", "offset", "on", "or", "order",
    "select", "set", "then", "timestamp", "true", "tuple", "union", "using", "when", "where", "with",
})  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Where a sample comes from: its topic, how many of its messages were read of how many (about), and from where."""

    topic: str
    about: int
    partitions: int


@dataclass(frozen=True)
class Connections:
    """What the definition says of the servers: both `connection_params`, and a remark on each ('' for none)."""

    kafka: dict[str, Any]
    clickhouse: dict[str, Any]
    kafka_remark: str = ""
    clickhouse_remark: str = ""


@dataclass(frozen=True)
class _Column:
    field: Field
    name: str
    choice: ColumnChoice


def propose(origin: Origin, events: Events, connections: Connections, pipeline_id: str | None = None) -> str:
    """Write a definition for a topic from a sample of it; raises `GlassflowError` where the sample has no field."""
    if not events.objects:
        formats = "; Avro and Protobuf are not supported yet" if FROM_A_REGISTRY in events.others else ""
        raise GlassflowError(
            f"topic {origin.topic!r}: none of the {events.messages:,} messages read is a JSON object "
            f"({events.others_text}); a pipeline reads JSON objects{formats}"
        )
    fields = observe(events.objects)
    if not fields.known:
        raise GlassflowError(
            f"topic {origin.topic!r}: none of the {events.messages:,} messages read has a field that a definition can "
            "name; look at them, and name the fields by hand"
        )
    keys = candidates(fields.known, events.objects, origin.topic)
    columns = _columns(fields.known)
    key = keys[0] if keys and keys[0].is_unique else None
    pipeline = pipeline_id or pipeline_name(origin.topic)
    lines = [
        *_heading(origin, events, pipeline),
        "version: v3",
        f"pipeline_id: {_scalar(pipeline)}",
        *_source(origin.topic, fields, connections, with_schema=events.with_schema),
        *_dedup(origin.topic, key, keys),
        *_sink(origin.topic, columns, key, connections),
    ]
    return "\n".join(lines) + "\n"


def pipeline_name(topic: str) -> str:
    """Make a pipeline_id of a topic's name."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", topic).strip("_-")[:_MAX_ID]
    return name if len(name) >= _MIN_ID else f"{name}_events".lstrip("_")


def _heading(origin: Origin, events: Events, pipeline: str) -> list[str]:
    partitions = f"{origin.partitions} partition{'s' if origin.partitions > 1 else ''}"
    read, about = events.messages, origin.about
    sample = f"all {read:,}" if read >= about else f"{read:,} of about {about:,}"
    where = "" if read >= about else ", from the beginning and the end of each"
    others = f" The others become dead letters: {events.others_text}." if events.others else ""
    return [
        *_comment(f"Proposed for topic {_name(origin.topic)} after reading {sample} messages ({partitions}{where})."),
        *_comment(f"{len(events.objects):,} of them are JSON objects.{others}"),
        *_comment(
            "Look it over: a field that was always there may be missing in messages that were not read; such a message "
            "becomes a dead letter, unless the field is marked required: false."
        ),
        *_comment(f"Save it as pipelines/{pipeline}.yaml."),
    ]


def _source(topic: str, fields: Fields, connections: Connections, *, with_schema: bool) -> Iterator[str]:
    yield "sources:"
    yield "  - type: kafka"
    yield f"    source_id: {_scalar(topic)}"
    yield from _connection(connections.kafka, connections.kafka_remark)
    yield f"    topic: {_scalar(topic)}"
    if with_schema:
        yield "    schema_registry:  # the messages begin with a schema's id; the registry itself is not asked"
        yield f"      url: {REGISTRY}"
    yield "    schema_fields:"
    entries = []
    for field in fields.known:
        entry: dict[str, Any] = {"name": field.name, "type": declared_as(field.kind)}
        if not field.required:
            entry["required"] = False
        elif with_schema:
            entry["required"] = True  # left out it means false where there is a schema
        entries.append((f"      - {write_flow(entry)}", _seen(field)))
    yield from _with_comments(entries)
    for name, count in fields.not_objects.items():
        yield from _comment(f"{_name(name)} is no object in {count:,} events; its fields count as missing there.", 6)
    if fields.left_out:
        yield from _comment(f"Not declared, for their names or their number: {_names(fields.left_out)}.", 6)


def _seen(field: Field) -> str:
    """Say what is not the same in all events."""
    parts = []
    if field.missing or field.nulls:
        counts = [f"{field.missing:,} missing"] * bool(field.missing) + [f"{field.nulls:,} null"] * bool(field.nulls)
        parts.append(f"{', '.join(counts)} of {field.events:,}")
    if len(field.types) > 1:
        counted = ", ".join(f"{count:,} {name}" for name, count in field.types.most_common())
        unfit = len(field.values) - len(field.fitting)
        parts.append(f"{counted}: {unfit:,} {'become' if unfit > 1 else 'becomes'} dead letters")
    return "; ".join(parts)


def _dedup(topic: str, key: Key | None, keys: Sequence[Key]) -> Iterator[str]:
    if key:
        yield "transforms:"
        yield from _comment(f"The first event of each {_name(key.name)} is kept: {key.text}.", 2)
        for other in keys[1:]:
            if other.is_unique:
                yield from _comment(f"Or {_name(other.name)}: {other.text}.", 2)
        yield "  - type: dedup"
        yield f"    source_id: {_scalar(topic)}"
        config = write_flow({"key": key.name, "time_window": WINDOW})
        yield f"    config: {config}  # the window: how long a producer may take to send an event again"
        return
    yield "# No field looks like the key of an event, so every event is written."
    for other in keys:
        yield from _comment(f"{_name(other.name)} is shared by different events: {other.text}.")
    yield "# To deduplicate, name the field (or several: keys: [a, b]) that an event has when it is sent again:"
    yield "# transforms:"
    yield "#   - type: dedup"
    yield f"#     source_id: {_scalar(topic)}"
    yield f"#     config: {{key: FIELD, time_window: {WINDOW}}}"


def _sink(topic: str, columns: Sequence[_Column], key: Key | None, connections: Connections) -> Iterator[str]:
    yield "sink:"
    yield "  type: clickhouse"
    yield from (line.removeprefix("  ") for line in _connection(connections.clickhouse, connections.clickhouse_remark))
    yield f"  table: {_scalar(re.sub(r'[^A-Za-z0-9_]', '_', topic))}"
    yield "  max_batch_size: 10000  # rows of one insert at most"
    yield "  max_delay_time: 1s  # a smaller batch goes after this time"
    yield "  mapping:"
    entries = [
        (_mapped(column.field.name, column.name, column.choice.type), column.choice.remark) for column in columns
    ]
    if "_batch_time" not in {column.field.name for column in columns}:
        arrival = _free_name(ARRIVAL, {column.name for column in columns})
        entries.append((_mapped("_batch_time", arrival, "DateTime64(3)"), "when the row came"))
    yield from _with_comments(entries)
    yield "  create_table:  # used where the table is missing"
    yield "    engine: MergeTree"
    yield f"    order_by: {_scalar(_order(columns, key))}  # what queries select by; cannot be changed later"


def _order(columns: Sequence[_Column], key: Key | None) -> str:
    """Choose what rows are sorted by: the key, else the first time, else nothing."""
    if key:
        return next(_sql_name(column.name) for column in columns if column.field.name == key.name)
    times = (column for column in columns if column.field.required and is_time(column.choice.type))
    return next((_sql_name(column.name) for column in times), "tuple()")


def _columns(fields: Sequence[Field]) -> list[_Column]:
    """Give each field a column: ClickHouse takes a dot in a name for a nested structure, so it is none here."""
    taken: set[str] = set()
    columns = []
    for field in fields:
        name = _free_name(re.sub(r"\W", "_", field.name), taken)
        taken.add(name)
        columns.append(_Column(field, name, choose_column(field)))
    return columns


def _free_name(name: str, taken: set[str]) -> str:
    numbered = (f"{name}_{number}" for number in range(2, len(taken) + 3))
    return next(free for free in (name, *numbered) if free not in taken)


def _mapped(name: str, column: str, kind: str) -> str:
    return f"    - {write_flow({'name': name, 'column_name': column, 'column_type': kind})}"


def _connection(parameters: dict[str, Any], remark: str) -> Iterator[str]:
    yield "    connection_params:" + (f"  # {remark}" if remark else "")
    for key, value in parameters.items():
        yield f"      {key}: {_scalar(value)}"


def _comment(text: str, indent: int = 0) -> list[str]:
    """Write a comment, on several lines where it is long."""
    start = f"{' ' * indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )


def _with_comments(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Put the comments of some lines below one another."""
    width = min(max(len(line) for line, _ in entries), COMMENT_COLUMN)
    for line, comment in entries:
        yield f"{line:<{width}}  # {comment}" if comment else line


def _scalar(value: Any) -> str:
    """Write a value so that YAML reads it back, whatever its characters."""
    return write_flow([value])[1:-1]


def _sql_name(column: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column) and column.lower() not in _RESERVED
    return column if plain else f"`{column}`"


def _name(name: str) -> str:
    """Write a name for a comment: on one line, whatever is in it."""
    return name if re.fullmatch(r"[\w.-]+", name) else json.dumps(name)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(_name(name) for name in names[:NAMES_SHOWN]) + more
