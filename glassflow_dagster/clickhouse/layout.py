"""The properties of a table that decide how a block is split into parts, and whether its rows can be found later.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

# Engines whose merges change the values of rows, so that a row that was inserted may not be found.
_CHANGES_ROWS = re.compile(r"(Summing|Aggregating|Collapsing|VersionedCollapsing|Graphite|Coalescing)MergeTree$")
# Engines that keep insert tokens in Keeper, where token and part are committed together.
_REPLICATED = ("Replicated", "Shared")


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
        return self.engine.endswith("MergeTree") and not self.engine.startswith(_REPLICATED)

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
    by_name = {name: Column(*description) for name, *description in columns}
    return Layout(database, table, engine, bool(has_ttl), bool(has_views), partition_key, sorting_key, by_name)
