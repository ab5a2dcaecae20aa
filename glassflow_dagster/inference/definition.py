"""Generate a v3 definition from what is known of a pipeline: for `infer`, the page and `new`.

What nobody has said has a proposal, so that the definition is always complete.
"""

import copy
import os
import re
from collections.abc import Iterator
from typing import Any

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.table_names import write_table_name
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.servers import with_address_of
from glassflow_dagster.definition.shared_tables import TableAddress, others_of
from glassflow_dagster.inference.columns import is_time_column
from glassflow_dagster.inference.draft import Available, EventClock, JoinChoice, MappedColumn, PipelineDraft, Side
from glassflow_dagster.inference.servers import Servers

JOIN_ID = "join"
BATCH_TIME = "_batch_time"
_ARRIVAL_COLUMN, _ARRIVAL_TYPE = "ingested_at", "DateTime64(3)"
_MIN_ID, _MAX_ID = 5, 100  # characters of a pipeline_id
# SQL keywords, which ClickHouse does not take for a column name without backquotes.
_RESERVED = frozenset({
    "all", "and", "any", "array", "as", "asc", "between", "by", "case", "cast", "date", "desc",
    "distinct", "else", "end", "except", "false", "from", "global", "group", "having", "if", "in", "inf",
    "interval", "is", "join", "like", "limit", "nan", "not", "null", "offset", "on", "or", "order",
    "select", "set", "then", "timestamp", "true", "tuple", "union", "using", "when", "where", "with",
})  # fmt: skip
# Kind of a computed field -> the column that takes all its values; arrays and objects as their JSON text.
_COLUMNS: dict[FieldKind, str] = {
    "bool": "Bool", "string": "String", "int": "Int64", "uint": "UInt64", "float": "Float64", "array": "String",
    "map": "String", "decimal": "Decimal(38, 9)", "bigint": "Int256", "ubigint": "UInt256", "any": "String",
}  # fmt: skip


def definition_of(draft: PipelineDraft) -> dict[str, Any]:
    """Return the definition of a draft, secrets included."""
    source, join = draft.source, draft.join
    sides = [source, *([draft.right] if join and draft.right else [])]
    transforms = [each for side in sides for each in _transforms_of(side)]
    computed = _stateless(draft)
    definition: dict[str, Any] = {
        "version": "v3",
        "pipeline_id": draft.pipeline_id or proposed_id(draft),
        **({"name": draft.name} if draft.name else {}),
        "sources": [_source(draft, side) for side in sides],
    }
    if transforms or computed:
        definition["transforms"] = [*transforms, *computed]
    if join and draft.right:
        definition["join"] = _join(source, draft.right, join)
    return {**definition, "sink": _sink(draft)}


def before_join(draft: PipelineDraft) -> dict[str, Any]:
    """Return the definition without its join, for what is tried on events of the first topic.

    The columns are those that the fields propose.
    """
    alone = PipelineDraft(
        kafka=draft.kafka, left=draft.left, computed=draft.computed, clickhouse=draft.clickhouse,
        pipeline_id=draft.pipeline_id,
    )  # fmt: skip
    return definition_of(alone)


def proposed_id(draft: PipelineDraft) -> str:
    """Return a pipeline_id for the topics."""
    name = draft.source.topic
    if draft.join and draft.right:
        name = f"{name}_with_{draft.right.topic}"
    return pipeline_name(name)


def pipeline_name(topic: str) -> str:
    """Return a valid pipeline_id for a topic: its letters, digits, "-" and "_", at most _MAX_ID characters."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", topic).strip("_-")[:_MAX_ID]
    # A short topic gets a suffix, since a pipeline_id has at least _MIN_ID characters.
    return name if len(name) >= _MIN_ID else f"{name}_events".lstrip("_")


def proposed_table(draft: PipelineDraft, database: str) -> str:
    """Return a name for a table of the pipeline's own: of its topic, else of its topics, that no definition writes."""
    topic = re.sub(r"\W", "_", draft.source.topic)
    if not draft.writers:
        return topic
    # Enough numbers: one of these names is not among those that are written.
    numbered = (f"{topic}_{number}" for number in range(2, sum(len(each.tables) for each in draft.writers) + 3))
    names = (topic, re.sub(r"\W", "_", proposed_id(draft)), *numbered)
    return next(name for name in names if not others_of(address_of(draft, database, name), "", draft.writers))


def address_of(draft: PipelineDraft, database: str, table: str) -> TableAddress:
    """Return the address of a table as it will be reached: the environment may replace the server."""
    connection = ClickHouseConnection.model_validate({**(draft.clickhouse or default_clickhouse())})
    return TableAddress.of(with_address_of(connection, os.environ), database, table)


def available_fields(draft: PipelineDraft) -> list[Available]:
    """Return the fields that the mapping can use, in order: of the events or of the joined events, then computed ones.

    A computed field replaces one of its name.
    """
    joins = draft.join is not None and draft.right is not None
    computed = {each.name: each for each in draft.computed}
    fields = [
        Available(field.name, field.kind, field.column.type, field.column.remark, field.examples)
        for field in draft.source.sample.fields
        if field.name not in computed
    ]
    if joins:
        fields += list(_right_fields(draft))
    fields += [Available(each.name, each.kind, _COLUMNS[each.kind], each.expression) for each in draft.computed]
    return fields


def proposed_mapping(draft: PipelineDraft) -> tuple[MappedColumn, ...]:
    """Return a column for each field: that of the table with a similar name, or a new one. Last is the batch's time.

    An existing table has only some of the columns: fields without one are not used.
    """
    existing = draft.target.columns if draft.target else None
    by_name = {_plain(column.name): column for column in existing or ()}
    taken: set[str] = set()
    mapped = []
    for field in available_fields(draft):
        column = by_name.get(_plain(field.name))
        if column and column.name not in taken:
            mapped.append(MappedColumn(field.name, column.name, column.type))
        elif existing is None:
            mapped.append(MappedColumn(field.name, _unused(re.sub(r"\W", "_", field.name), taken), field.column_type))
        else:
            mapped.append(MappedColumn(field.name, "", field.column_type, used=False))
        taken.add(mapped[-1].column)
    if BATCH_TIME in {each.field for each in mapped}:
        return tuple(mapped)
    return (*mapped, _arrival(draft, taken))


def proposed_order(draft: PipelineDraft) -> str:
    """Return the ORDER BY of a new table: the columns of the key, else the first date or time that is always there.

    `tuple()`, which is no order, when there is neither.
    """
    mapped = [each for each in draft.mapping or proposed_mapping(draft) if each.used]
    columns = {each.field: _sql_name(each.column) for each in mapped}
    key = [columns[name] for name in draft.source.key if name in columns]
    if key and len(key) == len(draft.source.key):
        return key[0] if len(key) == 1 else f"({', '.join(key)})"
    times = (each for each in mapped if is_time_column(each.type) and not each.type.startswith("Nullable"))
    return next((columns[each.field] for each in times if each.field != BATCH_TIME), "tuple()")


def default_clickhouse() -> dict[str, Any]:
    """Return the `connection_params` of the environment's ClickHouse, else of the embedded one.

    Its password, if any, is a reference that only files may have; it is left out.
    """
    parameters = Servers().connections(Servers().kafka()).clickhouse
    return {
        key: value
        for key, value in parameters.items()
        if key in ClickHouseConnection.model_fields and key != "password"
    }


def default_brokers() -> str:
    """Return the environment's brokers, else those of the embedded stack."""
    return ", ".join(Servers().kafka().brokers)


def _source(draft: PipelineDraft, side: Side) -> dict[str, Any]:
    sample = side.sample
    declared = [
        # Left out it means false where there is a schema.
        {**field.declaration, **({"required": field.required} if side.registry or side.schema else {})}
        for field in sample.fields
    ]
    return {
        "type": "kafka",
        "source_id": side.topic,
        # A copy: YAML writes what two sources share as an anchor.
        "connection_params": copy.deepcopy(draft.kafka or {}),
        "topic": side.topic,
        **({"format": sample.format} if sample.format != "json" else {}),
        **({"schema_registry": side.registry} if side.registry else {}),
        **({"schema": side.schema} if side.schema else {}),
        **side.key_encoding,
        **({"consumer_group_initial_offset": side.start} if side.start != "earliest" else {}),
        "schema_fields": declared,
    }


def _transforms_of(side: Side) -> Iterator[dict[str, Any]]:
    if side.filter:
        yield {"type": "filter", "source_id": side.topic, "config": {"expression": side.filter}}
    if side.key:
        key = {"key": side.key[0]} if len(side.key) == 1 else {"keys": [*side.key]}
        yield {
            "type": "dedup",
            "source_id": side.topic,
            "config": {**key, "time_window": side.window, **_dedup_clock(side.clock)},
        }


def _dedup_clock(clock: EventClock | None) -> dict[str, Any]:
    """Return the keys of a deduplication's clock."""
    if clock is None:
        return {}
    rest = {"late": clock.late, "allowed_lateness": clock.lateness}
    return {"clock": "event", **_event_time(clock), **{key: text for key, text in rest.items() if text}}


def _event_time(clock: EventClock | None) -> dict[str, Any]:
    """Return the keys that name the field with the time of an event; none for the time of arrival."""
    if clock is None:
        return {}
    return {"event_time": clock.field, **({"event_time_unit": clock.unit} if clock.unit else {})}


def _stateless(draft: PipelineDraft) -> list[dict[str, Any]]:
    """Return the transform that adds the computed fields; it names the others, too, which would be dropped."""
    if not draft.computed:
        return []
    computed = {each.name for each in draft.computed}
    kept = [each.name for each in available_fields(draft) if each.name not in computed]
    outputs = [{"expression": name, "output_name": name} for name in kept]
    outputs += [{"expression": each.expression, "output_name": each.name} for each in draft.computed]
    owner = JOIN_ID if draft.join and draft.right else draft.source.topic
    return [{"type": "stateless", "source_id": owner, "config": {"transforms": outputs}}]


def _join(left: Side, right: Side, join: JoinChoice) -> dict[str, Any]:
    outputs = [{"source_id": left.topic, "name": field.name} for field in left.sample.fields]
    outputs += [
        {"source_id": right.topic, "name": name, **({} if name == joined else {"output_name": joined})}
        for name, joined in _joined_names(left, right, join).items()
    ]
    return {
        "enabled": True,
        "type": join.type,
        **({"match": join.match} if join.match != "latest" else {}),
        **({"clock": "event"} if join.left_clock else {}),
        "left_source": {
            "source_id": left.topic, "key": join.left_key, "time_window": join.window, **_event_time(join.left_clock)
        },
        "right_source": {
            "source_id": right.topic, "key": join.right_key, "time_window": join.window, **_event_time(join.right_clock)
        },
        "output_fields": outputs,
    }  # fmt: skip


def _joined_names(left: Side, right: Side, join: JoinChoice) -> dict[str, str]:
    """Return the right event's fields -> their names in the joined event; not the key, which the left event has.

    A name that the left event has, too, gets the right topic's name before it.
    """
    used = {field.name for field in left.sample.fields}
    names: dict[str, str] = {}
    for field in right.sample.fields:
        if field.name == join.right_key:
            continue
        name = f"{right.topic}_{field.name}" if field.name in used else field.name
        names[field.name] = _unused(name, used)
        used.add(names[field.name])
    return names


def _right_fields(draft: PipelineDraft) -> Iterator[Available]:
    """Yield the right event's fields under their names in the joined event; without a match they are null."""
    assert draft.right
    assert draft.join
    names = _joined_names(draft.source, draft.right, draft.join)
    computed = {each.name for each in draft.computed}
    for field in draft.right.sample.fields:
        name = names.get(field.name)
        if name is None or name in computed:
            continue
        column = _nullable(field.column.type) if draft.join.type == "left" else field.column.type
        yield Available(name, field.kind, column, f"from {draft.right.topic}", field.examples)


def _sink(draft: PipelineDraft) -> dict[str, Any]:
    connection = draft.clickhouse or default_clickhouse()
    target = draft.target
    mapping = draft.mapping or proposed_mapping(draft)
    sink: dict[str, Any] = {
        "type": "clickhouse",
        "connection_params": {**connection, **({"database": target.database} if target else {})},
        "table": write_table_name(target.table if target else proposed_table(draft, connection.get("database") or "")),
        **({"shared_table": True} if target and target.shared else {}),
        "max_batch_size": draft.rows,
        "max_delay_time": draft.delay,
        "mapping": [
            {"name": each.field, "column_name": each.column, "column_type": each.type} for each in mapping if each.used
        ],
    }
    if target is None or target.columns is None:
        sink["create_table"] = {"engine": "MergeTree", "order_by": draft.order_by or proposed_order(draft)}
    return sink


def _arrival(draft: PipelineDraft, taken: set[str]) -> MappedColumn:
    """Return the mapping of the batch's time; unused where an existing table has no column for it."""
    existing = draft.target.columns if draft.target else None
    if existing is None:
        return MappedColumn(BATCH_TIME, _unused(_ARRIVAL_COLUMN, taken), _ARRIVAL_TYPE)
    found = next((each for each in existing if each.name == _ARRIVAL_COLUMN and each.name not in taken), None)
    return MappedColumn(
        BATCH_TIME, found.name if found else "", found.type if found else _ARRIVAL_TYPE, used=bool(found)
    )


def _plain(name: str) -> str:
    """Return a name without what differs between spellings: `user.orderId`, `user_order_id`."""
    return re.sub(r"[\W_]", "", name).lower()


def _sql_name(column: str) -> str:
    """Return a column name for SQL, in backquotes where it is no plain identifier."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column) and column.lower() not in _RESERVED
    return column if plain else f"`{column}`"


def _unused(name: str, used: set[str]) -> str:
    """Return the name, or name_2, name_3 ... when it is used already."""
    # Enough numbers: one of these names is not among the used ones.
    numbered = (f"{name}_{number}" for number in range(2, len(used) + 3))
    return next(each for each in (name, *numbered) if each not in used)


def _nullable(column: str) -> str:
    """Return a proposed type as one that takes null; arrays and maps, which have no null, as JSON text."""
    if "Nullable(" in column:
        return column
    if column.startswith(("Array(", "Map(")):
        return "Nullable(String)"
    if column.startswith("LowCardinality("):
        return f"LowCardinality(Nullable({column.removeprefix('LowCardinality(')})"
    return f"Nullable({column})"
