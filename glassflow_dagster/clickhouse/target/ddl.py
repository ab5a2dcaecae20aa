"""Statements that make the target table and give it columns."""

import re
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.identifiers import full_name, on_cluster, quote_name
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.target.token_window import window_settings
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.sink import CreateTable
from glassflow_dagster.config.model.types import ColumnType, parse_column_type
from glassflow_dagster.config.stages import nullable_names

# Types that cannot stand within Nullable.
_NEVER_NULL = frozenset({"Array", "Map", "Tuple", "Nested", "Variant", "Dynamic", "JSON"})

# The definition has asked for such a column by name.
_RARE_TYPES = "allow_suspicious_low_cardinality_types = 1"
_RARE_LOW_CARDINALITY = re.compile(r"LowCardinality\((?:Nullable\()?(?!Nullable|String|FixedString)")

# Engines that have an order, and a window of tokens.
_SORTS = re.compile(r"\s*\w*MergeTree\b")


def create_database(database: str, cluster: str | None = None) -> str:
    """Make a database unless it is there."""
    return f"CREATE DATABASE IF NOT EXISTS {quote_name(database)}{on_cluster(cluster)}"


@dataclass(frozen=True)
class NewColumn:
    """A column as the definition asks for it: where it does, its name, type and default expression ('' for none)."""

    place: str
    name: str
    type: str
    default: str = ""

    @property
    def sql(self) -> str:
        """The column's part of a statement."""
        default = f" DEFAULT {self.default}" if self.default else ""
        return f"{quote_name(self.name)} {self.type}{default}"

    @property
    def is_rare(self) -> bool:
        """Whether ClickHouse asks twice before it makes such a column: LowCardinality of anything but text."""
        return _RARE_LOW_CARDINALITY.search(self.type) is not None


def new_columns(config: PipelineConfig) -> list[NewColumn]:
    """List the columns that the target gets where it is made: those of the mapping, then create_table's own.

    A definition may name the inner type alone. So a column whose field may be null is made Nullable, as far as
    ClickHouse allows: not where order, partitions, TTL or engine rest on it, nor where the type takes no NULL.
    """
    how = config.sink.create_table or CreateTable()
    optional = nullable_names(config)
    columns = []
    for index, mapping in enumerate(config.sink.mapping):
        kind = mapping.column_type
        if mapping.name in optional and not rests_on(how, mapping.column_name):
            kind = with_null(kind)
        columns.append(NewColumn(f"sink.mapping[{index}]", mapping.column_name, kind))
    for index, extra in enumerate(how.columns):
        columns.append(NewColumn(f"sink.create_table.columns[{index}]", extra.name, extra.type, extra.default or ""))
    return columns


def rests_on(how: CreateTable, column: str) -> bool:
    """Whether engine, order, partitions or TTL of a table name a column; none of them takes NULL."""
    clauses = " ".join(clause for clause in (how.engine, how.order_by, how.partition_by, how.ttl) if clause)
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", clauses) is not None


def with_null(kind: str) -> str:
    """Give a type's form that takes NULL; the type as it is where there is none, or where it does already."""
    column = parse_column_type(kind)
    if column.nullable or column.base.name in _NEVER_NULL:
        return kind
    if column.name == "LowCardinality":
        return str(ColumnType("LowCardinality", (ColumnType("Nullable", column.arguments),)))
    return str(ColumnType("Nullable", (column,)))


def create_target(config: PipelineConfig) -> str:
    """Make the target from the mapping and `sink.create_table`, its token window included; several lines."""
    how = config.sink.create_table or CreateTable()
    columns = new_columns(config)
    lines = ",\n".join(f"    {column.sql}" for column in columns)
    sorts = _SORTS.match(how.engine) is not None
    settings = [
        *([window_settings(how.engine)] if sorts else []),
        *([_RARE_TYPES] if any(column.is_rare for column in columns) else []),
    ]
    name = f"{full_name(*config.sink.full_table)}{on_cluster(config.sink.cluster)}"
    parts = [
        f"CREATE TABLE IF NOT EXISTS {name}\n(\n{lines}\n)",
        f"ENGINE = {how.engine}",
        f"PARTITION BY {how.partition_by}" if how.partition_by else "",
        f"ORDER BY {how.order_by}" if sorts or "order_by" in how.model_fields_set else "",
        f"TTL {how.ttl}" if how.ttl else "",
        f"SETTINGS {', '.join(settings)}" if settings else "",
    ]
    return "\n".join(part for part in parts if part)


def add_column(database: str, table: str, column: NewColumn) -> str:
    """Give an existing table a column; rows that are there already have its default, or the type's."""
    statement = f"ALTER TABLE {full_name(database, table)} ADD COLUMN IF NOT EXISTS {column.sql}"
    return f"{statement} SETTINGS {_RARE_TYPES}" if column.is_rare else statement


def ensure_database(client: Client, database: str, cluster: str | None = None) -> None:
    """Make a database where it is missing."""
    # Asked first: CREATE ... IF NOT EXISTS needs the right to create even where the thing exists.
    found = fetch(client, "SELECT 1 FROM system.databases WHERE name = {name:String}", {"name": database})
    if not found:
        execute(client, create_database(database, cluster))
