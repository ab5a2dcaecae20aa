"""Lists databases, tables and columns, for people who choose one of them; and says whether a table is there."""

from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.queries import fetch

_OF_THE_SERVER = ("system", "information_schema", "INFORMATION_SCHEMA")


def list_databases(client: Client) -> list[str]:
    """Return the databases that the user sees, without the server's own."""
    rows = fetch(client, "SELECT name FROM system.databases ORDER BY name")
    return [name for (name,) in rows if name not in _OF_THE_SERVER]


def list_tables(client: Client, database: str) -> list[dict[str, Any]]:
    """Return name and engine of each table of a database."""
    query = "SELECT name, engine FROM system.tables WHERE database = {database:String} ORDER BY name"
    return [{"name": name, "engine": engine} for name, engine in fetch(client, query, {"database": database})]


def has_table(client: Client, database: str, table: str) -> bool:
    """Return whether the user sees a table or view of this name. Raises what `fetch` raises."""
    query = "SELECT 1 FROM system.tables WHERE database = {database:String} AND name = {name:String}"
    return bool(fetch(client, query, {"database": database, "name": table}))


def list_columns(client: Client, database: str, table: str) -> list[dict[str, Any]]:
    """Return the columns of a table in their order: name, type, the kind of default and its expression."""
    rows = fetch(
        client,
        "SELECT name, type, default_kind, default_expression FROM system.columns "
        "WHERE database = {database:String} AND table = {name:String} ORDER BY position",
        {"database": database, "name": table},
    )
    names = ("name", "type", "default_kind", "default_expression")
    return [dict(zip(names, row, strict=True)) for row in rows]
