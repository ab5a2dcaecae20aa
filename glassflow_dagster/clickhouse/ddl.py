"""What the project creates: the target table, and the two tables in which pipelines keep their books.

Both books lie in the connection's database and are shared by its pipelines. They are written with tokens like the
target, so they get the same token window.
"""

import re
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.token_window import ensure_tokens_kept, window_settings
from glassflow_dagster.config.model import CreateTable, PipelineConfig
from glassflow_dagster.config.stages import nullable_names
from glassflow_dagster.config.types import ColumnType, parse_column_type

LEDGER = "glassflow_ledger"
DEAD_LETTERS = "glassflow_dead_letters"

# Column -> type. `offsets` holds what the batch read: [from, until) of each partition.
LEDGER_COLUMNS = {
    "pipeline_id": "String",
    "incarnation": "UUID",
    "batch_id": "UInt64",
    "batch_time": "DateTime64(3, 'UTC')",
    "definition": "String",
    "offsets": "Array(Tuple(topic String, partition UInt32, `from` UInt64, until UInt64))",
    "rows_before": "UInt64",
    "read": "UInt64",
    "written": "UInt64",
    "duplicates": "UInt64",
    "filtered": "UInt64",
    "late": "UInt64",
    "unmatched": "UInt64",
    "matched": "UInt64",
    "waiting": "UInt64",
    "dead_letters": "UInt64",
    "blocks": "UInt32",
    "bytes": "UInt64",
}

# Column -> type, in the order in which the sink's Arrow blocks may have them. Headers are pairs, since Kafka allows a
# name twice; keys, values and header values are bytes, and null where Kafka had null.
DEAD_LETTER_COLUMNS = {
    "pipeline_id": "String",
    "incarnation": "UUID",
    "batch_id": "UInt64",
    "batch_time": "DateTime64(3, 'UTC')",
    "topic": "LowCardinality(String)",
    "partition": "UInt32",
    "offset": "UInt64",
    "timestamp": "DateTime64(3, 'UTC')",
    "key": "Nullable(String)",
    "value": "Nullable(String)",
    "headers": "Array(Tuple(name String, value Nullable(String)))",
    "stage": "LowCardinality(String)",
    "reason": "String",
}

# Types that cannot stand within Nullable.
_NEVER_NULL = frozenset({"Array", "Map", "Tuple", "Nested", "Variant", "Dynamic", "JSON"})

_INSERTED_AT = "`inserted_at` DateTime64(3, 'UTC') DEFAULT now64(3)"


def create_database(database: str) -> str:
    """Make a database unless it is there."""
    return f"CREATE DATABASE IF NOT EXISTS {quote_name(database)}"


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
    columns = ",\n".join(f"    {column.sql}" for column in new_columns(config))
    parts = [
        f"CREATE TABLE IF NOT EXISTS {full_name(*config.sink.full_table)}\n(\n{columns}\n)",
        f"ENGINE = {how.engine}",
        f"PARTITION BY {how.partition_by}" if how.partition_by else "",
        f"ORDER BY {how.order_by}",
        f"TTL {how.ttl}" if how.ttl else "",
        f"SETTINGS {window_settings(how.engine)}",
    ]
    return "\n".join(part for part in parts if part)


def add_column(database: str, table: str, column: NewColumn) -> str:
    """Give an existing table a column; rows that are there already have its default, or the type's."""
    return f"ALTER TABLE {full_name(database, table)} ADD COLUMN IF NOT EXISTS {column.sql}"


def create_ledger(database: str) -> str:
    """Make the ledger: one row a batch, what became of every record."""
    return _create_book(database, LEDGER, LEDGER_COLUMNS, "(pipeline_id, incarnation, batch_id)")


def create_dead_letters(database: str) -> str:
    """Make the table of records that could not go on, with the reason and all that is needed to send them again."""
    order = "(pipeline_id, batch_time, topic, partition, offset)"
    return _create_book(database, DEAD_LETTERS, DEAD_LETTER_COLUMNS, order)


def ensure_database(client: Client, database: str) -> None:
    """Make a database where it is missing."""
    # Asked first, here and below: CREATE ... IF NOT EXISTS needs the right to create even where the thing exists.
    found = fetch(client, "SELECT 1 FROM system.databases WHERE name = {name:String}", {"name": database})
    if not found:
        execute(client, create_database(database))


def ensure_bookkeeping(client: Client, database: str) -> None:
    """Make the ledger and the dead letters' table where they are missing, and see that they remember tokens."""
    ensure_database(client, database)
    found = fetch(client, "SELECT name FROM system.tables WHERE database = {name:String}", {"name": database})
    for book, statement in ((LEDGER, create_ledger(database)), (DEAD_LETTERS, create_dead_letters(database))):
        if (book,) not in found:
            execute(client, statement)
        ensure_tokens_kept(client, database, book)


def _create_book(database: str, table: str, columns: dict[str, str], order_by: str) -> str:
    definitions = ", ".join(f"{quote_name(name)} {kind}" for name, kind in columns.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {full_name(database, table)} ({definitions}, {_INSERTED_AT}) "
        f"ENGINE = MergeTree ORDER BY {order_by} SETTINGS {window_settings('MergeTree')}"
    )
