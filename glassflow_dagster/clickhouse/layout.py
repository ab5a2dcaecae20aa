"""The properties of a table that decide how a block is split into parts, and whether its rows can be found later.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

# Engines whose merges change the values of rows, so that a row that was inserted may not be found.
_CHANGES_ROWS = re.compile(r"(Summing|Aggregating|Collapsing|VersionedCollapsing|Graphite|Coalescing)MergeTree$")


def is_replicated(engine: str) -> bool:
    """Return True for an engine (or engine clause) that keeps insert tokens in Keeper, where they also expire.

    Token and part are committed together there, and every replica knows the token.
    """
    return engine.startswith(("Replicated", "Shared"))


@dataclass(frozen=True)
class Column:
    """A column: its type, and its DEFAULT, MATERIALIZED or ALIAS kind and expression ('' for none)."""

    type: str
    default_kind: str
    default: str


@dataclass(frozen=True)
class Layout:
    """A table's engine, partition and sorting key, and the columns that the keys are computed from."""

    database: str
    table: str
    engine: str
    has_ttl: bool
    has_views: bool
    partition_key: str
    sorting_key: str
    columns: Mapping[str, Column]

    @property
    def tokens_unreliable_after_restart(self) -> bool:
        """True when a restart of the server may leave an insert token without its rows: a MergeTree without Keeper."""
        return self.engine.endswith("MergeTree") and not is_replicated(self.engine)

    @property
    def keeps_rows(self) -> bool:
        """True when every inserted row stays in the table unchanged."""
        return self.engine == "MergeTree" and not self.has_ttl

    @property
    def changes_rows(self) -> bool:
        """True when merges change the values of rows, so that inserted rows cannot be found by their values."""
        return _CHANGES_ROWS.search(self.engine) is not None


def read_layout(client: Client, database: str, table: str) -> Layout:
    """Return a table's layout, with engine '' when the table is missing; raises the client's own errors."""
    where = {"database": database, "name": table}
    tables = client.query(
        "SELECT engine, position(engine_full, ' TTL ') > 0, notEmpty(dependencies_table), partition_key, sorting_key "
        "FROM system.tables WHERE database = {database:String} AND name = {name:String}",
        parameters=where,
    ).result_rows
    columns = client.query(
        "SELECT name, type, default_kind, default_expression FROM system.columns "
        "WHERE database = {database:String} AND table = {name:String}",
        parameters=where,
    ).result_rows
    engine, has_ttl, has_views, partition_key, sorting_key = tables[0] if tables else ("", 0, 0, "", "")
    return Layout(
        database=database,
        table=table,
        engine=engine,
        has_ttl=bool(has_ttl),
        has_views=bool(has_views),
        partition_key=partition_key,
        sorting_key=sorting_key,
        columns={name: Column(kind, default_kind, default) for name, kind, default_kind, default in columns},
    )
