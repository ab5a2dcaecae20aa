"""Statements that create the target table and add columns to it."""

import re
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import CreateTable
from glassflow_dagster.definition.model.types import ColumnType, parse_column_type, written_as
from glassflow_dagster.definition.nullable_names import nullable_names
from glassflow_dagster.stores.clickhouse.identifiers import full_name, on_cluster, quote_name
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.clickhouse.tables.token_window import window_settings

# Types that cannot be wrapped in Nullable.
_NEVER_NULL = frozenset({"Array", "Map", "Tuple", "JSON"})

# ClickHouse calls a LowCardinality of other than text suspicious, and creates it only with this setting. The definition
# names these columns explicitly.
_ALLOW_SUSPICIOUS = "allow_suspicious_low_cardinality_types = 1"
_SUSPICIOUS_LOW_CARDINALITY = re.compile(r"LowCardinality\((?:Nullable\()?(?!Nullable|String|FixedString)")

# Engines with a sorting key and a token window.
_SORTED_ENGINE = re.compile(r"\s*\w*MergeTree\b")


def create_database(database: str, cluster: str | None = None) -> str:
    """Return the CREATE DATABASE IF NOT EXISTS statement."""
    return f"CREATE DATABASE IF NOT EXISTS {quote_name(database)}{on_cluster(cluster)}"


@dataclass(frozen=True)
class NewColumn:
    """A column to create: its path in the definition, its name, type and default expression ('' for none)."""

    path: str
    name: str
    type: str
    default: str = ""

    @property
    def sql(self) -> str:
        """The column's definition in CREATE TABLE or ADD COLUMN."""
        default = f" DEFAULT {self.default}" if self.default else ""
        return f"{quote_name(self.name)} {self.type}{default}"

    @property
    def is_suspicious(self) -> bool:
        """True when ClickHouse creates such a column only with `_ALLOW_SUSPICIOUS`."""
        return _SUSPICIOUS_LOW_CARDINALITY.search(self.type) is not None


def new_columns(config: PipelineConfig) -> list[NewColumn]:
    """Return the columns of a target that is created: those of the mapping, then those of `create_table.columns`.

    A definition may name a type without Nullable. A column whose field may be null is made Nullable where ClickHouse
    allows it: not when a clause of the table uses it, nor when the type cannot be Nullable. A Nested is created as the
    array of tuples that it is: the server would make columns of its elements.
    """
    creation = config.sink.create_table or CreateTable()
    optional, paths = nullable_names(config), config.sink.paths
    columns = []
    for index, mapping in enumerate(config.sink.mapping):
        kind = _unflattened(mapping.column_type)
        if mapping.name in optional and not is_used_in_clauses(creation, mapping.column_name):
            kind = as_nullable(kind)
        columns.append(NewColumn(f"{paths.mapping}[{index}]", mapping.column_name, kind))
    for index, extra in enumerate(creation.columns):
        path = f"{paths.create_table}.columns[{index}]"
        columns.append(NewColumn(path, extra.name, extra.type, extra.default or ""))
    return columns


def is_used_in_clauses(creation: CreateTable, column: str) -> bool:
    """Return True when ENGINE, ORDER BY, PARTITION BY or TTL use the column; none of them allows NULL."""
    clauses = " ".join(
        clause for clause in (creation.engine, creation.order_by, creation.partition_by, creation.ttl) if clause
    )
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", clauses) is not None


def _unflattened(kind: str) -> str:
    """Return the type of a column as the server keeps it in one piece."""
    column = parse_column_type(kind)
    return str(written_as(column)) if column.name == "Nested" else kind


def as_nullable(kind: str) -> str:
    """Return the Nullable form of a type; the type itself when it has no such form or is Nullable already."""
    column = parse_column_type(kind)
    written = written_as(column)
    if written.nullable or written.base.name in _NEVER_NULL:
        return kind
    if column.name == "SimpleAggregateFunction":  # takes Nullable inside only
        function, of = column.arguments
        return str(ColumnType(column.name, (function, parse_column_type(as_nullable(str(of))))))
    if column.name == "LowCardinality":  # takes Nullable inside only
        return str(ColumnType("LowCardinality", (ColumnType("Nullable", column.arguments),)))
    return str(ColumnType("Nullable", (column,)))


def create_target(config: PipelineConfig) -> str:
    """Return the target's CREATE TABLE statement, token window included, by the mapping and `sink.create_table`."""
    creation = config.sink.create_table or CreateTable()
    columns = new_columns(config)
    lines = ",\n".join(f"    {column.sql}" for column in columns)
    is_sorted = _SORTED_ENGINE.match(creation.engine) is not None
    settings = [
        *([window_settings(creation.engine)] if is_sorted else []),
        *([_ALLOW_SUSPICIOUS] if any(column.is_suspicious for column in columns) else []),
    ]
    # Other engines get an ORDER BY only where the definition sets it, as it has a default.
    needs_order = is_sorted or "order_by" in creation.model_fields_set
    name = f"{full_name(*config.sink.full_table)}{on_cluster(config.sink.cluster)}"
    parts = [
        f"CREATE TABLE IF NOT EXISTS {name}\n(\n{lines}\n)",
        f"ENGINE = {creation.engine}",
        f"PARTITION BY {creation.partition_by}" if creation.partition_by else "",
        f"ORDER BY {creation.order_by}" if needs_order else "",
        f"TTL {creation.ttl}" if creation.ttl else "",
        f"SETTINGS {', '.join(settings)}" if settings else "",
    ]
    return "\n".join(part for part in parts if part)


def add_column(database: str, table: str, column: NewColumn) -> str:
    """Return the ALTER TABLE statement that adds a column; existing rows get its default, or the type's."""
    statement = f"ALTER TABLE {full_name(database, table)} ADD COLUMN IF NOT EXISTS {column.sql}"
    return f"{statement} SETTINGS {_ALLOW_SUSPICIOUS}" if column.is_suspicious else statement


def ensure_database(client: Client, database: str, cluster: str | None = None) -> None:
    """Create a database unless it exists."""
    # Check first: CREATE ... IF NOT EXISTS needs the right to create even when the database exists.
    existing = fetch(client, "SELECT 1 FROM system.databases WHERE name = {name:String}", {"name": database})
    if not existing:
        execute(client, create_database(database, cluster))
