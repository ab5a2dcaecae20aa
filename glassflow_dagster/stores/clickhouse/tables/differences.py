"""Differences between a pipeline definition and its target table, as commands, the driver and Dagster show them.

The table decides on nullability, LowCardinality and the members of an Enum; the definition on which columns are filled.
A difference either stops the pipeline, because its rows would be rejected or changed, or is a note. A difference from
`create_table` is a note at most: it is used once and changes no existing table.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import CreateTable, Mapping
from glassflow_dagster.definition.model.types import (
    LEAVE_OUT,
    conversion,
    declared_as,
    kinds_taken,
    parse_column_type,
    parse_written_type,
    same_values,
    takes,
    unsupported_reason,
)
from glassflow_dagster.definition.nullable_names import WhyNull, nullable_names
from glassflow_dagster.definition.problems import nearest
from glassflow_dagster.definition.stages import plan_stages
from glassflow_dagster.stores.clickhouse.layout import is_replicated
from glassflow_dagster.stores.clickhouse.table import Column, Table
from glassflow_dagster.stores.clickhouse.tables.ddl import NewColumn, as_nullable, is_used_in_clauses, new_columns
from glassflow_dagster.stores.clickhouse.tables.token_window import (
    is_view,
    no_token_window_reason,
    unsupported_engine_reason,
)

# Columns that ClickHouse computes itself, so that an insert cannot name them.
_COMPUTED = ("MATERIALIZED", "ALIAS")
# The clauses that follow the engine in `engine_full`.
_CLAUSE = re.compile(r" (?:PARTITION BY|PRIMARY KEY|ORDER BY|SAMPLE BY|TTL|SETTINGS) ")
# Reason for null -> description of the value that may be null, and the remedy.
_NULLS = {
    WhyNull.OPTIONAL: ("field {} (required: false)", "make the field required"),
    WhyNull.NO_KEY: ("Kafka's key", "fill it from a field"),
    WhyNull.NO_MATCH: ("field {} (right source of a join with type: left)", "use type: inner"),
}
_ADD = "add it with glassflow-dagster table FILE --diff --alter"


@dataclass(frozen=True)
class Difference:
    """A difference: its path in the definition, and a text with the remedy.

    stops: whether it keeps the pipeline from starting; otherwise it is a note.
    missing: the column whose addition fixes it, if there is one.
    """

    path: str
    text: str
    stops: bool = True
    missing: NewColumn | None = None

    def __str__(self) -> str:
        """Return `path: text`, as `validate` prints problems."""
        return f"{self.path}: {self.text}"


def differences(config: PipelineConfig, table: Table) -> Iterator[Difference]:
    """Yield what differs between a definition and its target table.

    In this order: the engine, the mapped columns, columns of `create_table` that are not mapped, columns of the table
    that nothing fills, other parts of `create_table`. A difference that `stops` keeps the pipeline from starting.
    """
    # A Distributed table is checked by its shards at the start of the driver (`distributed.py`).
    if not (table.family.endswith("MergeTree") or table.engine == "Distributed"):
        stops = config.sink.delivery == "exactly_once" or is_view(table.engine)
        explain = unsupported_engine_reason if stops else no_token_window_reason
        yield Difference(config.sink.paths.table, explain(table.database, table.name, table.engine), stops=stops)
    columns = new_columns(config)  # the mapped columns, then those of `create_table.columns`
    mapped, extra = columns[: len(config.sink.mapping)], columns[len(config.sink.mapping) :]
    for index, column in enumerate(mapped):
        yield from _mapped_column(config, index, column, table)
    yield from _null_notes(config, {name: column.text for name, column in table.columns.items()})
    for column in extra:
        yield from _extra_column(column, table)
    yield from _unfilled_columns(columns, table, config.sink.paths.mapping)
    if config.sink.create_table:
        yield from _creation_notes(config.sink.create_table, table, config.sink.paths.create_table)


def notes_on_creation(config: PipelineConfig) -> Iterator[Difference]:
    """Yield notes on a table before it is created: optional fields whose column cannot be Nullable."""
    mapped = new_columns(config)[: len(config.sink.mapping)]  # without those of `create_table.columns`
    yield from _null_notes(config, {column.name: column.type for column in mapped})


def _mapped_column(config: PipelineConfig, index: int, wanted: NewColumn, table: Table) -> Iterator[Difference]:
    """Yield the difference of one mapped column: it is missing, computed by the table, or of another type.

    index: of its mapping.
    wanted: the column that the definition would create.
    """
    mapping, where = config.sink.mapping[index], table.full_name
    column = table.columns.get(mapping.column_name)
    if column is None and (elements := _elements(table, mapping.column_name)):
        yield Difference(f"{wanted.path}.column_name", f"{where} has {_flattened(mapping, elements)}")
    elif column is None:
        near = nearest(mapping.column_name, table.columns)
        remedy = f"did you mean {near!r}? Else {_ADD}" if near else _ADD
        text = f"{where} has no column {mapping.column_name!r}; {remedy}"
        yield Difference(f"{wanted.path}.column_name", text, missing=wanted)
    elif column.default_kind in _COMPUTED:
        yield Difference(
            f"{wanted.path}.column_name",
            f"{where} computes column {mapping.column_name!r} itself ({column.default_kind}); "
            "remove it from the mapping",
        )
    elif not same_values(mapping.parsed_type, column.type):
        yield Difference(
            f"{wanted.path}.column_type",
            f"is {mapping.column_type}, but column {mapping.column_name!r} of {where} is {column.text}"
            f"{_type_remedy(config, mapping, column)}",
        )


def _type_remedy(config: PipelineConfig, mapping: Mapping, column: Column) -> str:
    """Return what to do where a mapping's type is not that of the column; follows "... is TYPE"."""
    if unsupported_reason(column.type):
        return f", which no field fills; {LEAVE_OUT}"
    kind = plan_stages(config).mappable[mapping.name]
    if not takes(column.type, kind):
        kinds = " or ".join(map(declared_as, kinds_taken(column.type)))
        expression = conversion(column.type, kind, mapping.name)
        fitting = f"an output of a stateless transform, {expression}," if expression else "a field that fits it"
        return (
            f", which takes {kinds}, and {mapping.name!r} is {declared_as(kind)}; map {fitting} and write "
            f"{column.type.base} here, or {LEAVE_OUT}"
        )
    return f"; write {column.type.base} here if the field's values fit it, or change the column"


def _elements(table: Table, name: str) -> dict[str, Column]:
    """Return the columns of a flattened Nested: name of the element -> column; empty where the table has none."""
    start = f"{name}."
    return {
        column.removeprefix(start): kind
        for column, kind in table.columns.items()
        if column.startswith(start) and kind.type.name == "Array"
    }


def _flattened(mapping: Mapping, elements: dict[str, Column]) -> str:
    """Return why a mapping to a flattened Nested does not work, and what to map; follows "TABLE has"."""
    name = mapping.column_name
    columns = ", ".join(f"{name}.{element} {column.type}" for element, column in elements.items())
    members = (f".{element}" if element.isidentifier() else f"#[{json.dumps(element)}]" for element in elements)
    outputs = ", ".join(f"map({mapping.name}, {member})" for member in members)
    return (
        f"{name!r} as a flattened Nested, whose columns are {columns}; map those in its place, from outputs of a "
        f"stateless transform: {outputs}"
    )


def _null_notes(config: PipelineConfig, types: dict[str, str]) -> Iterator[Difference]:
    """Yield a note for each field that may be null and fills a column that takes no NULL.

    types: column -> type in the table. The remedy is a Nullable column, unless the type has no Nullable form or a
    clause of `create_table` uses the column.
    """
    why_null, creation = nullable_names(config), config.sink.create_table or CreateTable()
    for index, mapping in enumerate(config.sink.mapping):
        text = types.get(mapping.column_name)
        # A type that no field fills is a difference of its own; a null for a Map is an empty map.
        if mapping.name not in why_null or text is None or not _refuses_null(text):
            continue
        nullable = as_nullable(text)
        value, otherwise = _NULLS[why_null[mapping.name]]  # what may be null, and how to prevent it
        value = value.format(repr(mapping.name))
        remedy = f"make the column {nullable}"
        if nullable == text:
            remedy = f"{otherwise}, or fill a Nullable(String), which keeps the JSON text"
        elif is_used_in_clauses(creation, mapping.column_name):
            remedy = f"{otherwise}, or remove {mapping.column_name!r} from create_table's clauses"
        yield Difference(
            f"{config.sink.paths.mapping}[{index}].column_type",
            f"{value} may be null, but column {mapping.column_name!r} ({text}) accepts no NULL, so such a record "
            f"becomes a dead letter; {remedy}",
            stops=False,
        )


def _refuses_null(text: str) -> bool:
    """Return whether a column can be filled, but not with null."""
    try:
        kind = parse_written_type(text)
    except ValueError:
        return False
    return unsupported_reason(kind) is None and not kind.nullable and kind.base.name != "Map"


def _extra_column(wanted: NewColumn, table: Table) -> Iterator[Difference]:
    """Yield a note on a column of `create_table.columns`: the table lacks it, or its type or default differs."""
    where, column = table.full_name, table.columns.get(wanted.name)
    if column is None:
        if not _elements(table, wanted.name):
            text = f"{where} has no column {wanted.name!r}; {_ADD}, or remove it here"
            yield Difference(wanted.path, text, stops=False, missing=wanted)
    elif _type_text(wanted.type) != _type_text(column.text):
        text = f"is {wanted.type}, but column {wanted.name!r} of {where} is {column.text}; change one of them"
        yield Difference(f"{wanted.path}.type", text, stops=False)
    elif wanted.default and not column.default_kind:
        text = f"column {wanted.name!r} of {where} has no default; give it one: DEFAULT {wanted.default}"
        yield Difference(f"{wanted.path}.default", text, stops=False)


def _unfilled_columns(columns: list[NewColumn], table: Table, path: str) -> Iterator[Difference]:
    """Yield a note on each column of the table without a default that the definition does not name.

    path: of the mapping.
    """
    in_definition = {column.name for column in columns}
    for name, column in table.columns.items():
        if name not in in_definition and not column.default_kind:
            can_be_filled = unsupported_reason(column.type) is None
            remedy = "map a field to it, or ignore this note" if can_be_filled else "no field can fill it"
            yield Difference(
                path,
                f"nothing fills column {name!r} ({column.text}) of {table.full_name}, which has no "
                f"default: every row gets {_empty(column)}; {remedy}",
                stops=False,
            )


def _creation_notes(creation: CreateTable, table: Table, path: str) -> Iterator[Difference]:
    """Yield a note on each clause of `create_table` that the existing table does not have.

    Engines are compared by family and column arguments; that one is replicated and the other is not has its own note.
    path: of `create_table`.
    """
    # engine_full has the other clauses after the engine.
    engine = _CLAUSE.split(f"{table.engine_full} ", maxsplit=1)[0].strip() or table.engine
    # Clause, its text in the definition, its text in the table, and whether both say the same.
    clauses = [
        ("engine", creation.engine, engine, _family_and_columns(creation.engine) == _family_and_columns(engine)),
        ("order_by", creation.order_by, table.sorting_key, _plain(creation.order_by) == _plain(table.sorting_key)),
        (
            "partition_by",
            creation.partition_by or "",
            table.partition_key,
            _plain(creation.partition_by or "") == _plain(table.partition_key),
        ),
    ]
    # The server rewrites a TTL expression, so only its presence can be compared.
    clauses.append(("ttl", creation.ttl or "", "one" if table.ttl else "", bool(creation.ttl) == table.ttl))
    for key, wanted, actual, same in clauses:
        if not same:
            yield Difference(
                f"{path}.{key}",
                f"is {wanted or 'none'}, but {table.full_name} has {actual or 'none'}; create_table does "
                "not change an existing table: correct the definition, or recreate the table",
                stops=False,
            )
    if is_replicated(creation.engine) and not is_replicated(table.engine):
        text = f"is {creation.engine}, but {table.full_name} is not replicated ({engine}); recreate the table"
        yield Difference(f"{path}.engine", text, stops=False)


def _family_and_columns(engine: str) -> str:
    """Return an engine's family and column arguments, to compare it with another one.

    The prefix Replicated or Shared is left out, as are the path and the replica name, which are in quotes.
    """
    family = _plain(engine).removeprefix("Replicated").removeprefix("Shared")
    name, _, arguments = family.rstrip(")").partition("(")
    columns = [argument for argument in arguments.split(",") if argument and not argument.startswith("'")]
    return f"{name}({','.join(columns)})"


def _type_text(kind: str) -> str:
    """Return a type as ClickHouse writes it, also of an alias; of a type that is not understood its plain text."""
    try:
        return str(parse_column_type(kind))
    except ValueError:
        return _plain(kind)


def _plain(expression: str) -> str:
    """Return an expression without blanks, identifier quotes and outer parentheses, to compare it with the server's."""
    text = re.sub(r"[\s`]", "", expression)
    if text.startswith("tuple(") and text.endswith(")"):
        text = text.removeprefix("tuple")
    if text.startswith("(") and _closes_at(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _closes_at(text: str) -> int:
    """Return the index of the parenthesis that closes the one at the text's start; -1 when there is none."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return position
    return -1


def _empty(column: Column) -> str:
    """Return a description of the value of a column that no field fills."""
    return "NULL" if column.type.nullable else "the type's empty value"
