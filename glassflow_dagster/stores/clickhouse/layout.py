"""The properties of a table that decide how a block is split into parts, and whether its rows can be found later.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.sql_text import columns_with_ttl

# Engines whose merges change the values of rows, so that a row that was inserted may not be found.
_CHANGES_ROWS = re.compile(r"(Summing|Aggregating|Collapsing|VersionedCollapsing|Graphite|Coalescing)MergeTree$")
# A table's TTL that sums up expired rows of one key, so that they have other values than those that were inserted.
_SUMS_UP_EXPIRED = re.compile(r" TTL .* GROUP BY ", re.DOTALL)

_NO_TABLE = ("", "", "", 0, "", "")


def is_replicated(engine: str) -> bool:
    """Return True for an engine (or engine clause) that keeps insert tokens in Keeper, where they also expire.

    Token and part are committed together there, and every replica knows the token.
    """
    return engine.startswith(("Replicated", "Shared"))


@dataclass(frozen=True)
class Column:
    """A column: its type, its DEFAULT, MATERIALIZED or ALIAS kind and expression ('' for none), and if it has a TTL.

    has_ttl: of its own, after which the server replaces the values by the default.
    """

    type: str
    default_kind: str
    default: str
    has_ttl: bool = False


@dataclass(frozen=True)
class Layout:
    """A table's engine, partition and sorting key, and the columns that the keys are computed from."""

    database: str
    table: str
    engine: str
    has_ttl: bool
    sums_up_expired: bool
    has_views: bool
    partition_key: str
    sorting_key: str
    columns: Mapping[str, Column]

    @property
    def is_merge_tree(self) -> bool:
        """True for an engine of the MergeTree family, which may remember insert tokens."""
        return self.engine.endswith("MergeTree")

    @property
    def keeps_rows(self) -> bool:
        """True when every inserted row stays in the table unchanged."""
        return self.engine == "MergeTree" and not self.has_ttl

    @property
    def changes_rows(self) -> bool:
        """True when merges change the values of rows, so that inserted rows cannot be found by their values."""
        return self.sums_up_expired or _CHANGES_ROWS.search(self.engine) is not None

    def lasting(self, names: Iterable[str]) -> list[str]:
        """Return those of the columns whose values the server keeps: a column's own TTL removes them one day."""
        return [name for name in names if not self.columns[name].has_ttl]


def read_layout(client: Client, database: str, table: str) -> Layout:
    """Return a table's layout, with engine '' when the table is missing; raises the client's own errors."""
    where = {"database": database, "name": table}
    tables = client.query(
        "SELECT engine, engine_full, create_table_query, notEmpty(dependencies_table), partition_key, sorting_key "
        "FROM system.tables WHERE database = {database:String} AND name = {name:String}",
        parameters=where,
    ).result_rows
    columns = client.query(
        "SELECT name, type, default_kind, default_expression FROM system.columns "
        "WHERE database = {database:String} AND table = {name:String}",
        parameters=where,
    ).result_rows
    engine, engine_full, create_query, has_views, partition_key, sorting_key = tables[0] if tables else _NO_TABLE
    with_ttl = columns_with_ttl(create_query)
    return Layout(
        database=database,
        table=table,
        engine=engine,
        has_ttl=" TTL " in engine_full,
        sums_up_expired=_SUMS_UP_EXPIRED.search(engine_full) is not None,
        has_views=bool(has_views),
        partition_key=partition_key,
        sorting_key=sorting_key,
        columns={
            name: Column(kind, default_kind, default, has_ttl=name in with_ttl)
            for name, kind, default_kind, default in columns
        },
    )
