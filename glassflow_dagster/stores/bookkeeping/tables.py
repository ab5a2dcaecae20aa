"""Creation and upgrade of the bookkeeping tables.

They are in the database of the ClickHouse connection, shared by its pipelines. They are written with insert tokens like
the target, so they get the same token window. A table of an earlier version gets the columns that it lacks.
"""

from collections.abc import Sequence

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.dead_letter_marks import PURGES, REPLAYS
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DEAD_LETTERS
from glassflow_dagster.stores.bookkeeping.drivers import DRIVERS
from glassflow_dagster.stores.bookkeeping.fencing import EPOCHS
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER
from glassflow_dagster.stores.bookkeeping.losses import LOSSES
from glassflow_dagster.stores.bookkeeping.schema import BookkeepingTable, Column
from glassflow_dagster.stores.bookkeeping.schema_changes import SCHEMA_CHANGES
from glassflow_dagster.stores.bookkeeping.splits import SPLITS
from glassflow_dagster.stores.bookkeeping.stop_requests import STOP_REQUESTS
from glassflow_dagster.stores.bookkeeping.windows import WINDOWS
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import on_cluster
from glassflow_dagster.stores.clickhouse.layout import is_replicated
from glassflow_dagster.stores.clickhouse.names import has_table
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.clickhouse.tables.ddl import ensure_database
from glassflow_dagster.stores.clickhouse.tables.token_window import ensure_tokens_kept, window_settings

TABLES = (
    LEDGER, DEAD_LETTERS, SPLITS, REPLAYS, PURGES, EPOCHS, WINDOWS, LOSSES, SCHEMA_CHANGES, DRIVERS, STOP_REQUESTS,
)  # fmt: skip

_INSERTED_AT = "`inserted_at` DateTime64(3, 'UTC') DEFAULT now64(3)"


def ensure_bookkeeping(client: Client, database: str, engine: str = "MergeTree", cluster: str | None = None) -> None:
    """Create missing bookkeeping tables, add missing columns and TTLs, and switch on their token windows.

    engine: of the tables that are created.
    cluster: for ON CLUSTER, or None.
    Raises `TableProblem` where an existing table is not replicated but the engine is, and `AccessDenied` with the
    statement to run where the user may not run it.
    """
    ensure_database(client, database, cluster)
    parameters = {"name": database}
    # engines: table -> engine_full, which has the TTL as well; columns: (table, column).
    engines = dict(
        fetch(client, "SELECT name, engine_full FROM system.tables WHERE database = {name:String}", parameters)
    )
    columns = set(fetch(client, "SELECT table, name FROM system.columns WHERE database = {name:String}", parameters))
    for table in TABLES:
        if table.name not in engines:
            execute(client, create_table(database, table, engine, cluster))
        else:
            if is_replicated(engine) and not is_replicated(engines[table.name]):
                raise TableProblem(_not_replicated(table.full_name(database), engine))
            missing = [column for column in table.columns if (table.name, column.name) not in columns]
            if missing:
                execute(client, add_columns(database, table, missing))
            if table.ttl and " TTL " not in engines[table.name]:
                execute(client, add_ttl(database, table))
        ensure_tokens_kept(client, database, table.name, cluster)


def require_bookkeeping_tables(client: Client, database: str) -> None:
    """Raise `TableProblem` when a bookkeeping table does not exist, or is of an older version and lacks columns."""
    columns = fetch(client, "SELECT table, name FROM system.columns WHERE database = {d:String}", {"d": database})
    existing_tables = {table for table, _ in columns}
    for table in TABLES:
        if table.name not in existing_tables:
            raise TableProblem(
                f"{database}.{table.name} does not exist: no pipeline of this version has run against this server and "
                "database yet; start one"
            )
        if any((table.name, name) not in columns for name in table.column_names):
            raise TableProblem(
                f"{database}.{table.name} was created by an earlier version and lacks columns; start the pipeline, "
                "which adds them"
            )


def has_dead_letters_table(client: Client, database: str) -> bool:
    """Return whether a pipeline of any version has run against this server and database."""
    return has_table(client, database, DEAD_LETTERS.name)


def create_table(database: str, table: BookkeepingTable, engine: str = "MergeTree", cluster: str | None = None) -> str:
    """Return the CREATE TABLE statement of a bookkeeping table."""
    columns = ", ".join(column.sql for column in table.columns)
    ttl = f"TTL {table.ttl} " if table.ttl else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {table.full_name(database)}{on_cluster(cluster)} ({columns}, "
        f"{_INSERTED_AT}) ENGINE = {engine} ORDER BY {table.order_by} {ttl}SETTINGS {window_settings(engine)}"
    )


def add_columns(database: str, table: BookkeepingTable, missing: Sequence[Column]) -> str:
    """Return the ALTER TABLE statement that adds the missing columns to a table of an earlier version."""
    additions = ", ".join(f"ADD COLUMN IF NOT EXISTS {column.sql}" for column in missing)
    return f"ALTER TABLE {table.full_name(database)} {additions}"


def add_ttl(database: str, table: BookkeepingTable) -> str:
    """Return the ALTER TABLE statement that adds the TTL to a table of an earlier version.

    Existing rows have no expiry, so they are not rewritten (`materialize_ttl_after_modify = 0`).
    """
    statement = f"ALTER TABLE {table.full_name(database)} MODIFY TTL {table.ttl}"
    return f"{statement} SETTINGS materialize_ttl_after_modify = 0"


def _not_replicated(table: str, engine: str) -> str:
    """Return the message for an existing table that is not replicated as the definition demands."""
    return (
        f"{table} is not replicated, but the definition says sink.bookkeeping_engine: {engine}; stop the pipelines of "
        f"this database and convert it (DETACH TABLE {table}; ATTACH TABLE {table} AS REPLICATED; SYSTEM RESTORE "
        f"REPLICA {table}), or remove the setting"
    )
