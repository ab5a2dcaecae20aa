"""What decides into which parts a table puts a block, and whether rows that it took are found in it again.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

# Engines whose merges change what a row says, so that a row that is in the table may not be found there.
_CHANGES_ROWS = re.compile(r"(Summing|Aggregating|Collapsing|VersionedCollapsing|Graphite|Coalescing)MergeTree$")
# Engines whose tokens are in Keeper, where token and part come together.
_REPLICATED = ("Replicated", "Shared")


@dataclass(frozen=True)
class Column:
    """A column: its type, and the expression that fills it where an insert does not."""

    type: str
    default_kind: str
    default: str


@dataclass(frozen=True)
class Layout:
    """What decides into which parts a table puts a block: engine, keys, and the columns they are made of."""

    database: str
    table: str
    engine: str
    has_ttl: bool
    has_views: bool
    partition_key: str
    sorting_key: str
    columns: Mapping[str, Column]

    @property
    def forgets_with_its_server(self) -> bool:
        """Whether its tokens and its parts may disagree behind a restart of the server."""
        return self.engine.endswith("MergeTree") and not self.engine.startswith(_REPLICATED)

    @property
    def keeps_rows(self) -> bool:
        """Whether every row that was written is there as it was."""
        return self.engine == "MergeTree" and not self.has_ttl

    @property
    def changes_rows(self) -> bool:
        """Whether merges make rows of others, so that none can be looked for."""
        return _CHANGES_ROWS.search(self.engine) is not None


def read_layout(client: Client, database: str, table: str) -> Layout:
    """Read a table's layout; errors of the client are its own. A table that is missing has an engine of no name."""
    where = {"database": database, "name": table}
    found = client.query(
        "SELECT engine, position(engine_full, ' TTL ') > 0, notEmpty(dependencies_table), partition_key, sorting_key "
        "FROM system.tables WHERE database = {database:String} AND name = {name:String}",
        parameters=where,
    ).result_rows
    columns = client.query(
        "SELECT name, type, default_kind, default_expression FROM system.columns "
        "WHERE database = {database:String} AND table = {name:String}",
        parameters=where,
    ).result_rows
    engine, has_ttl, has_views, partition_key, sorting_key = found[0] if found else ("", 0, 0, "", "")
    described = {name: Column(*description) for name, *description in columns}
    return Layout(database, table, engine, bool(has_ttl), bool(has_views), partition_key, sorting_key, described)
