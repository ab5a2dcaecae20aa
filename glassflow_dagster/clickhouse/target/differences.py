"""How a definition and its target differ: the one comparison that commands, driver and Dagster show.

The table has the last word on nullability, LowCardinality and the members of an Enum; the definition on which columns
are filled. A difference either stops the pipeline, because its rows would not go in or would be changed, or is worth
a note. How a table was made (`create_table`) is a note at most: it is used once and changes no table that is there.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassflow_dagster.clickhouse.tables import Column, Table
from glassflow_dagster.clickhouse.target.ddl import NewColumn, new_columns, rests_on, with_null
from glassflow_dagster.clickhouse.target.token_window import (
    is_replicated,
    is_view,
    recognises_no_repetition,
    unsupported_engine,
)
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.sink import CreateTable
from glassflow_dagster.config.model.types import ColumnType, parse_column_type, same_values
from glassflow_dagster.config.problems import nearest
from glassflow_dagster.config.stages import WhyNull, nullable_names

# Columns that ClickHouse computes itself, so that an insert cannot name them.
_COMPUTED = ("MATERIALIZED", "ALIAS")
# What follows the engine in a table's description, in its order.
_CLAUSE = re.compile(r" (?:PARTITION BY|PRIMARY KEY|ORDER BY|SAMPLE BY|TTL|SETTINGS) ")
# What is null, and how to make it be there.
_NULLS = {
    WhyNull.OPTIONAL: ("field {} (required: false)", "make the field required"),
    WhyNull.NO_KEY: ("Kafka's key", "fill it from a field"),
    WhyNull.NO_MATCH: ("field {} (right source of a join with type: left)", "use type: inner"),
}
_ADD = "add it with glassflow-dagster table FILE --diff --alter"


@dataclass(frozen=True)
class Difference:
    """A difference: where in the definition it shows, what it is and what to do.

    `stops` tells those that keep the pipeline from starting from mere notes. `missing` is the column to add, where
    adding one fixes it.
    """

    place: str
    text: str
    stops: bool = True
    missing: NewColumn | None = None

    def __str__(self) -> str:
        """Write it as a line, as `validate` does."""
        return f"{self.place}: {self.text}"


def differences(config: PipelineConfig, table: Table) -> Iterator[Difference]:
    """Yield how a definition and its target differ: the columns in the mapping's order, then the table as a whole."""
    # Whether a Distributed table is right its shards tell, which are asked at the start.
    if not (table.family.endswith("MergeTree") or table.engine == "Distributed"):
        stops = config.sink.delivery == "exactly_once" or is_view(table.engine)
        explain = unsupported_engine if stops else recognises_no_repetition
        yield Difference("sink.table", explain(table.database, table.name, table.engine), stops=stops)
    columns = new_columns(config)
    mapped, extra = columns[: len(config.sink.mapping)], columns[len(config.sink.mapping) :]
    for index, column in enumerate(mapped):
        yield from _mapped_column(config, index, column, table)
    yield from _nulls_refused(config, {name: column.type for name, column in table.columns.items()})
    for column in extra:
        yield from _extra_column(column, table)
    yield from _unfilled_columns(columns, table)
    if config.sink.create_table:
        yield from _making(config.sink.create_table, table)


def notes_on_creation(config: PipelineConfig) -> Iterator[Difference]:
    """Yield what is worth knowing of a table before it is made: optional fields whose column can't be Nullable."""
    mapped = new_columns(config)[: len(config.sink.mapping)]
    yield from _nulls_refused(config, {column.name: parse_column_type(column.type) for column in mapped})


def _mapped_column(config: PipelineConfig, index: int, wanted: NewColumn, table: Table) -> Iterator[Difference]:
    mapping, where = config.sink.mapping[index], f"{table.database}.{table.name}"
    column = table.columns.get(mapping.column_name)
    if column is None:
        near = nearest(mapping.column_name, table.columns)
        remedy = f"did you mean {near!r}? Else {_ADD}" if near else _ADD
        text = f"{where} has no column {mapping.column_name!r}; {remedy}"
        yield Difference(f"{wanted.place}.column_name", text, missing=wanted)
    elif column.default_kind in _COMPUTED:
        yield Difference(
            f"{wanted.place}.column_name",
            f"{where} computes column {mapping.column_name!r} itself ({column.default_kind}); "
            "remove it from the mapping",
        )
    elif not same_values(mapping.parsed_type, column.type):
        yield Difference(
            f"{wanted.place}.column_type",
            f"is {mapping.column_type}, but column {mapping.column_name!r} of {where} is {column.type}; "
            f"write {column.type.base} here if the field's values fit it, or change the column",
        )


def _nulls_refused(config: PipelineConfig, types: Mapping[str, ColumnType]) -> Iterator[Difference]:
    """Yield a note for each field that may be null and fills a column that takes no NULL."""
    optional, how = nullable_names(config), config.sink.create_table or CreateTable()
    for index, mapping in enumerate(config.sink.mapping):
        kind = types.get(mapping.column_name)
        if mapping.name not in optional or kind is None or kind.nullable:
            continue
        nullable = with_null(str(kind))
        if kind.base.name == "Map":
            continue  # it is empty then
        what, otherwise = _NULLS[optional[mapping.name]]
        what = what.format(repr(mapping.name))
        remedy = f"make the column {nullable}"
        if nullable == str(kind):
            remedy = f"{otherwise}, or fill a Nullable(String), which keeps the JSON text"
        elif rests_on(how, mapping.column_name):
            remedy = f"{otherwise}, or take {mapping.column_name!r} out of create_table's clauses"
        yield Difference(
            f"sink.mapping[{index}].column_type",
            f"{what} may be null, but column {mapping.column_name!r} ({kind}) takes no NULL, so such a record becomes "
            f"a dead letter; {remedy}",
            stops=False,
        )


def _extra_column(wanted: NewColumn, table: Table) -> Iterator[Difference]:
    where, column = f"{table.database}.{table.name}", table.columns.get(wanted.name)
    if column is None:
        text = f"{where} has no column {wanted.name!r}; {_ADD}, or remove it here"
        yield Difference(wanted.place, text, stops=False, missing=wanted)
    elif _plain(wanted.type) != _plain(str(column.type)):
        text = f"is {wanted.type}, but column {wanted.name!r} of {where} is {column.type}; change one of them"
        yield Difference(f"{wanted.place}.type", text, stops=False)
    elif wanted.default and not column.default_kind:
        text = f"column {wanted.name!r} of {where} has no default; give it one: DEFAULT {wanted.default}"
        yield Difference(f"{wanted.place}.default", text, stops=False)


def _unfilled_columns(columns: list[NewColumn], table: Table) -> Iterator[Difference]:
    known = {column.name for column in columns}
    for name, column in table.columns.items():
        if name not in known and not column.default_kind:
            yield Difference(
                "sink.mapping",
                f"nothing fills column {name!r} ({column.type}) of {table.database}.{table.name}, which has no "
                f"default: every row gets {_empty(column)}; map a field to it, or leave it so",
                stops=False,
            )


def _making(how: CreateTable, table: Table) -> Iterator[Difference]:
    """Yield notes on how the table was made otherwise than `create_table` says."""
    engine = _CLAUSE.split(f"{table.engine_full} ", maxsplit=1)[0].strip() or table.engine
    pairs = [
        ("engine", how.engine, engine, _engine_values(how.engine) == _engine_values(engine)),
        ("order_by", how.order_by, table.sorting_key, _plain(how.order_by) == _plain(table.sorting_key)),
        (
            "partition_by",
            how.partition_by or "",
            table.partition_key,
            _plain(how.partition_by or "") == _plain(table.partition_key),
        ),
    ]
    # The server writes a TTL in words of its own, so that only its being there can be compared.
    pairs.append(("ttl", how.ttl or "", "one" if table.ttl else "", bool(how.ttl) == table.ttl))
    for key, wanted, actual, same in pairs:
        if not same:
            yield Difference(
                f"sink.create_table.{key}",
                f"is {wanted or 'none'}, but {table.database}.{table.name} has {actual or 'none'}; create_table "
                "changes no table that is there: correct it here, or make the table anew",
                stops=False,
            )
    if is_replicated(how.engine) and not is_replicated(table.engine):
        text = f"is {how.engine}, but {table.database}.{table.name} is not replicated ({engine}); make the table anew"
        yield Difference("sink.create_table.engine", text, stops=False)


def _engine_values(engine: str) -> str:
    """Give an engine's family and the columns it names; where its parts are kept (paths, replicas) is left out."""
    family = _plain(engine).removeprefix("Replicated").removeprefix("Shared")
    name, _, arguments = family.rstrip(")").partition("(")
    columns = [argument for argument in arguments.split(",") if argument and not argument.startswith("'")]
    return f"{name}({','.join(columns)})"


def _plain(expression: str) -> str:
    """Give an expression without blanks, quotes of names and outer parentheses, in which the server's own differs."""
    text = re.sub(r"[\s`]", "", expression)
    if text.startswith("tuple(") and text.endswith(")"):
        text = text.removeprefix("tuple")
    if text.startswith("(") and _closes_at(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _closes_at(text: str) -> int:
    """Find where the parenthesis closes that a text opens with; -1 where it does not."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return position
    return -1


def _empty(column: Column) -> str:
    """Say what stands in a column without a value."""
    return "NULL" if column.type.nullable else "the type's empty value"
