"""What the project creates: the target table, and the tables in which pipelines keep their books.

The books lie in the connection's database and are shared by its pipelines. They are written with tokens like the
target, so they get the same token window. A book that an earlier version made gets the columns that it lacks.
"""

import re
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import full_name, on_cluster, quote_name
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.token_window import ensure_tokens_kept, is_replicated, window_settings
from glassflow_dagster.config.model import CreateTable, PipelineConfig
from glassflow_dagster.config.stages import nullable_names
from glassflow_dagster.config.types import ColumnType, parse_column_type

LEDGER = "glassflow_ledger"
DEAD_LETTERS = "glassflow_dead_letters"
SPLITS = "glassflow_splits"
REPLAYS = "glassflow_replays"
PURGES = "glassflow_purges"
EPOCHS = "glassflow_epochs"
WINDOWS = "glassflow_windows"
LOSSES = "glassflow_losses"

# Those that decide what a driver does next: what one replica has confirmed, each must know when it is asked.
DECIDING_BOOKS = frozenset({LEDGER, SPLITS, EPOCHS, WINDOWS, LOSSES})

# How rows get into these. Without replicas the quorum means nothing; with them `connect` reads accordingly.
WRITE_EVERYWHERE = {"async_insert": 0, "insert_quorum": "auto", "insert_quorum_parallel": 0}
WRITE_EVERYWHERE_SQL = ", ".join(f"{name} = {value!r}" for name, value in WRITE_EVERYWHERE.items())

# The last second that a DateTime holds, for what is kept for ever.
NEVER = 2**32 - 1  # seconds since 1970

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
    "taken": "UInt64",
    "accepted": "UInt64",
    "null_keys": "UInt64",
    "joined": "UInt64",
    "joined_filtered": "UInt64",
    "joined_dead_letters": "UInt64",
    "dead_letters_expire_at": "DateTime('UTC')",
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
    "attempt": "UInt16",
    "origin_topic": "LowCardinality(String)",
    "origin_partition": "UInt32",
    "origin_offset": "UInt64",
    "passed_dedup": "Bool",
    "expires_at": "DateTime('UTC')",
}

# Types that cannot stand within Nullable.
_NEVER_NULL = frozenset({"Array", "Map", "Tuple", "Nested", "Variant", "Dynamic", "JSON"})

# How far a block that the server refused has been taken apart, so that a repeated batch takes the same turns. Rows are
# counted within the block. With `settled`, all rows before `until` are in the table or among `refused`; without, rows
# from `from` to `until` were refused together and are sent in parts.
SPLIT_COLUMNS = {
    "pipeline_id": "String",
    "incarnation": "UUID",
    "batch_id": "UInt64",
    "block": "String",
    "from": "UInt32",
    "until": "UInt32",
    "settled": "Bool",
    "refused": "Array(Tuple(row UInt32, reason String))",
}

# What was sent to the replay topic: the place where a record was first read, and which attempt at it this is.
REPLAY_COLUMNS = {
    "pipeline_id": "String",
    "incarnation": "UUID",
    "topic": "LowCardinality(String)",
    "partition": "UInt32",
    "offset": "UInt64",
    "attempt": "UInt16",
    "replay_offset": "UInt64",
    "expires_at": "DateTime('UTC')",
}

# The dead letters that were deleted on purpose, so that the books still add up.
PURGE_COLUMNS = {
    "pipeline_id": "String",
    "incarnation": "UUID",
    "batch_time": "DateTime64(3, 'UTC')",
    "topic": "LowCardinality(String)",
    "partition": "UInt32",
    "offset": "UInt64",
    "expires_at": "DateTime('UTC')",
}

# Every start of a driver; the one with the greatest epoch may write.
EPOCH_COLUMNS = {
    "pipeline_id": "String",
    "incarnation": "UUID",
    "epoch": "UInt64",
    "driver": "UUID",
    "host": "String",
    "folder": "String",
    "rows": "UInt64",
}

# Tables whose window of insert tokens a pipeline has switched on, or rests on: what their own settings said before.
WINDOW_COLUMNS = {
    "pipeline_id": "String",
    "database": "String",
    "table": "String",
    "before": "Map(String, String)",
    "released": "Bool",
}

# What `run --accept-loss` skipped before a batch: [from, until) of a partition, or a state, and what waited in it.
LOSS_COLUMNS = {
    "pipeline_id": "String",
    "incarnation": "UUID",
    "batch_id": "UInt64",
    "reason": "LowCardinality(String)",
    "topic": "LowCardinality(String)",
    "partition": "UInt32",
    "from": "UInt64",
    "until": "UInt64",
    "waiting": "UInt64",
}

# What rows have in columns that came later than they did. Before there were replays, a record's place was its origin.
_DEFAULTS = {
    "origin_topic": "topic",
    "origin_partition": "partition",
    "origin_offset": "offset",
    "expires_at": f"toDateTime({NEVER}, 'UTC')",
    "dead_letters_expire_at": f"toDateTime({NEVER}, 'UTC')",
}


@dataclass(frozen=True)
class Book:
    """A table of the project's own: its columns, its sorting key, and the column by which rows expire."""

    name: str
    columns: dict[str, str]
    order_by: str
    ttl: str = ""


BOOKS = (
    Book(LEDGER, LEDGER_COLUMNS, "(pipeline_id, incarnation, batch_id)"),
    Book(DEAD_LETTERS, DEAD_LETTER_COLUMNS, "(pipeline_id, batch_time, topic, partition, offset)", "expires_at"),
    Book(SPLITS, SPLIT_COLUMNS, "(pipeline_id, incarnation, batch_id, block)"),
    Book(REPLAYS, REPLAY_COLUMNS, "(pipeline_id, incarnation, topic, partition, offset)", "expires_at"),
    Book(PURGES, PURGE_COLUMNS, "(pipeline_id, incarnation, topic, partition, offset)", "expires_at"),
    Book(EPOCHS, EPOCH_COLUMNS, "(pipeline_id, incarnation, epoch)"),
    Book(WINDOWS, WINDOW_COLUMNS, "(pipeline_id, database, table)"),
    Book(LOSSES, LOSS_COLUMNS, "(pipeline_id, incarnation, batch_id)"),
)

# The definition has asked for such a column by name.
_RARE_TYPES = "allow_suspicious_low_cardinality_types = 1"
_RARE_LOW_CARDINALITY = re.compile(r"LowCardinality\((?:Nullable\()?(?!Nullable|String|FixedString)")

# Engines that have an order, and a window of tokens.
_SORTS = re.compile(r"\s*\w*MergeTree\b")

_INSERTED_AT = "`inserted_at` DateTime64(3, 'UTC') DEFAULT now64(3)"


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
    # Asked first, here and below: CREATE ... IF NOT EXISTS needs the right to create even where the thing exists.
    found = fetch(client, "SELECT 1 FROM system.databases WHERE name = {name:String}", {"name": database})
    if not found:
        execute(client, create_database(database, cluster))


def ensure_bookkeeping(client: Client, database: str, engine: str = "MergeTree", cluster: str | None = None) -> None:
    """Make the books that are missing, and what is missing in them, and see that they remember tokens.

    engine: of the books that are made. Raises `TableProblem` where a book is not replicated, but the engine is, and
    `AccessDenied` with the statement to run where the user may not do it.
    """
    ensure_database(client, database, cluster)
    names = {"name": database}
    tables = dict(fetch(client, "SELECT name, engine_full FROM system.tables WHERE database = {name:String}", names))
    columns = set(fetch(client, "SELECT table, name FROM system.columns WHERE database = {name:String}", names))
    for book in BOOKS:
        if book.name not in tables:
            execute(client, create_book(database, book, engine, cluster))
        else:
            if is_replicated(engine) and not is_replicated(tables[book.name]):
                raise TableProblem(_not_replicated(full_name(database, book.name), engine))
            missing = [name for name in book.columns if (book.name, name) not in columns]
            if missing:
                execute(client, add_columns(database, book, missing))
            if book.ttl and " TTL " not in tables[book.name]:
                execute(client, add_ttl(database, book))
        ensure_tokens_kept(client, database, book.name, cluster)


def _not_replicated(book: str, engine: str) -> str:
    return (
        f"{book} is not replicated, but the definition says sink.bookkeeping_engine: {engine}; stop the pipelines of "
        f"this database and convert it (DETACH TABLE {book}; ATTACH TABLE {book} AS REPLICATED; SYSTEM RESTORE REPLICA "
        f"{book}), or remove the setting"
    )


def create_book(database: str, book: Book, engine: str = "MergeTree", cluster: str | None = None) -> str:
    """Make a book."""
    definitions = ", ".join(_column(name, kind) for name, kind in book.columns.items())
    ttl = f"TTL {book.ttl} " if book.ttl else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {full_name(database, book.name)}{on_cluster(cluster)} ({definitions}, "
        f"{_INSERTED_AT}) ENGINE = {engine} ORDER BY {book.order_by} {ttl}SETTINGS {window_settings(engine)}"
    )


def add_columns(database: str, book: Book, missing: list[str]) -> str:
    """Give a book that an earlier version made the columns it lacks."""
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {_column(name, book.columns[name])}" for name in missing)
    return f"ALTER TABLE {full_name(database, book.name)} {added}"


def add_ttl(database: str, book: Book) -> str:
    """Let the rows of a book that an earlier version made expire; those it has are kept, so none is looked at."""
    statement = f"ALTER TABLE {full_name(database, book.name)} MODIFY TTL {book.ttl}"
    return f"{statement} SETTINGS materialize_ttl_after_modify = 0"


def _column(name: str, kind: str) -> str:
    default = f" DEFAULT {_DEFAULTS[name]}" if name in _DEFAULTS else ""
    return f"{quote_name(name)} {kind}{default}"
