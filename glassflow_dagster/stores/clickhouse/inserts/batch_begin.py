"""What a batch notes of the server when it begins, to know later whether the server's insert tokens are reliable.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.server_run import RUN_COLUMNS, ServerRun
from glassflow_dagster.stores.clickhouse.table_identity import IDENTITY_COLUMNS, TableIdentity


@dataclass(frozen=True)
class TableState:
    """The server's run and a table's identity at a moment; None where it is not known, or where there is no table."""

    run: ServerRun | None
    identity: TableIdentity | None

    def is_same_table(self, now: "TableState") -> bool:
        """Return True when the table is the same one, as far as that is known."""
        return not (self.identity and now.identity) or self.identity.uuid == now.identity.uuid

    def is_unchanged(self, now: "TableState") -> bool:
        """Return True when it is the same table, unaltered, in the same run of the server."""
        is_same_run = self.run is not None and now.run is not None and now.run.is_same(self.run)
        return is_same_run and not self.lost_tokens(now)

    def lost_tokens(self, now: "TableState") -> bool:
        """Return True when it is another table, or was altered, so that it may not know its tokens any more."""
        return self.identity is not None and self.identity != now.identity

    def lost_window(self, now: "TableState") -> bool:
        """Return True when the table remembered tokens, and does so no more."""
        return bool(self.identity and self.identity.has_window and now.identity and not now.identity.has_window)


@dataclass(frozen=True)
class BatchBegin:
    """The server when a batch began: its run, its time in ms since 1970, the tables' identities by `database.table`.

    None of the batch's blocks was sent to an earlier run, or to another table. None where it is not known.
    """

    run: ServerRun | None = None
    at_ms: int | None = None
    tables: Mapping[str, TableIdentity] = field(default_factory=dict)

    def state_of(self, table: str) -> TableState:
        """Return what is known of a table, `database.table`, when the batch began."""
        return TableState(self.run, self.tables.get(table))


def read_state(client: Client, database: str, table: str) -> TableState:
    """Return the present state; raises the client's own errors."""
    ((*run, identities),) = client.query(
        f"SELECT {RUN_COLUMNS}, (SELECT groupArray(({IDENTITY_COLUMNS})) FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String})",
        parameters={"database": database, "name": table},
    ).result_rows
    return TableState(ServerRun.of(*run), TableIdentity.of(*identities[0]) if identities else None)
