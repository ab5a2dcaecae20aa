"""What the project creates: the target table, and the two tables in which pipelines keep their books.

Both books lie in the connection's database and are shared by its pipelines. They are written with tokens like the
target, so they get the same token window.
"""

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.token_window import ensure_tokens_kept, window_settings
from glassflow_dagster.config.model import CreateTable, PipelineConfig

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

_INSERTED_AT = "`inserted_at` DateTime64(3, 'UTC') DEFAULT now64(3)"


def create_database(database: str) -> str:
    """Make a database unless it is there."""
    return f"CREATE DATABASE IF NOT EXISTS {quote_name(database)}"


def create_target(config: PipelineConfig) -> str:
    """Make the target from the mapping and `sink.create_table`, its token window included."""
    how = config.sink.create_table or CreateTable()
    columns = [f"{quote_name(m.column_name)} {m.column_type}" for m in config.sink.mapping]
    for extra in how.columns:
        default = f" DEFAULT {extra.default}" if extra.default else ""
        columns.append(f"{quote_name(extra.name)} {extra.type}{default}")
    parts = [
        f"CREATE TABLE IF NOT EXISTS {full_name(*config.sink.full_table)} ({', '.join(columns)})",
        f"ENGINE = {how.engine}",
        f"PARTITION BY {how.partition_by}" if how.partition_by else "",
        f"ORDER BY {how.order_by}",
        f"TTL {how.ttl}" if how.ttl else "",
        f"SETTINGS {window_settings(how.engine)}",
    ]
    return " ".join(part for part in parts if part)


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
