"""A check of the target before each batch: what others change while the pipeline runs must not double rows either.

One query per batch reads the target's definition, the views that read the written tables, which tables these are, and
the server's run. The tables and views are examined again only when a view has come or gone, when another table has
taken the place of one (EXCHANGE, RENAME, DROP and CREATE), or when a table's token window was switched off.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import quote_text
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.server_run import MARKED_RUN_COLUMNS, MARKED_TABLE, ServerRun
from glassflow_dagster.stores.clickhouse.table import Table, require_table
from glassflow_dagster.stores.clickhouse.table_identity import IDENTITY_COLUMNS, TableIdentity
from glassflow_dagster.stores.clickhouse.tables.differences import differences
from glassflow_dagster.stores.clickhouse.tables.prepare import secure_target
from glassflow_dagster.stores.clickhouse.tables.views import TableId, WrittenTables, find_written_tables
from glassflow_dagster.stores.clickhouse.tables.window_changes import WindowNotes


@dataclass(frozen=True)
class TargetState:
    """The state of the target when a batch begins.

    definition: its columns and constraints as the server formats them.
    identities: `database.table` -> identity, of the target and its views' targets.
    run: the server's run.
    lead_ms: milliseconds by which the server's clock is ahead of this machine's.
    """

    definition: str
    identities: Mapping[str, TableIdentity]
    run: ServerRun
    lead_ms: int


@dataclass(frozen=True)
class _QueryResult:
    """The result of the query; dependents: written table -> the views and tables that read it."""

    definition: str
    dependents: dict[TableId, frozenset[TableId]]
    identities: dict[TableId, TableIdentity]
    run: ServerRun
    lead_ms: int

    @property
    def to_examine(self) -> tuple[object, ...]:
        """All that must be as it was when the tables were examined."""
        tables = {table_id: (table.uuid, table.has_window) for table_id, table in self.identities.items()}
        return self.dependents, tables


@dataclass
class TargetWatch:
    """The target of a running pipeline.

    notes: on the deduplication windows that the pipeline has set.
    warn: receives warnings about views that the user cannot see.
    """

    client: Client
    config: PipelineConfig
    table: Table
    notes: WindowNotes
    warn: Callable[[str], None]
    _written: WrittenTables | None = None
    _examined: tuple[object, ...] = ()

    def read(self) -> TargetState:
        """Return the target's current state; the first call also finds the tables that an insert writes to.

        What has changed is examined, and secured again (`secure_target`). Raises `TableProblem` when rows may be
        doubled, when the target does not fit the definition any more, or when the batch time must fill other columns
        than before.
        """
        if self._written is None:
            self._written = find_written_tables(self.client, self.table.database, self.table.name)
            self._examined = self._query(self._written).to_examine
        current = self._query(self._written)
        if current.to_examine != self._examined:
            self._secure_again()
            self._written = find_written_tables(self.client, self.table.database, self.table.name)
            current = self._query(self._written)
            self._examined = current.to_examine
        identities = {".".join(table_id): identity for table_id, identity in current.identities.items()}
        return TargetState(current.definition, identities, current.run, current.lead_ms)

    def _secure_again(self) -> None:
        """Examine the target and its views after a change, and secure them; raises what `read` raises."""
        where, name = self.config.sink.paths.table, self.table.full_name
        found = require_table(self.client, self.table.database, self.table.name)
        problems = [str(difference) for difference in differences(self.config, found) if difference.stops]
        if problems or found.engine != self.table.engine:
            other_engine = f"{where}: its engine was {self.table.engine} and is {found.engine}"
            raise TableProblem(
                f"{where}: another table has taken the place of {name}, or it was altered, while the pipeline ran; "
                "correct what does not fit, then start the pipeline again\n" + "\n".join(problems or [other_engine])
            )
        self.warn(
            f"{name}, a view of it, or a table behind a view was changed, replaced or created; checking that a "
            "repeated batch doubles no rows there"
        )
        secured = secure_target(self.client, self.config, found, self.notes, self.warn)
        if secured.clock_columns != self.table.clock_columns:
            raise TableProblem(
                f"{where}: {name} or a view of it was changed, and a table is partitioned by columns that the "
                f"server's clock fills ({', '.join(secured.clock_columns)}); start the pipeline again; it then fills "
                "them with the batch time"
            )

    def _query(self, written: WrittenTables) -> _QueryResult:
        """Query the definitions of the written tables, what reads from them, and the server's run and clock.

        lead_ms of the result: by how much the server's clock is ahead of this machine's, by which batch times are
        checked. written: the target, and the tables that views fill from it. Raises `TableProblem` when the target is
        missing.
        """
        wanted = [*written.table_ids, MARKED_TABLE]
        databases = ", ".join(sorted({quote_text(database) for database, _ in wanted}))
        names = ", ".join(sorted({quote_text(name) for _, name in wanted}))
        ids = ", ".join(f"({quote_text(database)}, {quote_text(name)})" for database, name in wanted)
        tables = fetch(
            self.client,
            "SELECT database, name, create_table_query, dependencies_database, dependencies_table, "
            f"{IDENTITY_COLUMNS}, {MARKED_RUN_COLUMNS}, toUnixTimestamp64Milli(now64(3)) FROM system.tables "
            # The server looks through all databases for pairs, and only through these for single names.
            f"WHERE database IN ({databases}) AND name IN ({names}) AND (database, name) IN ({ids})",
        )
        local_ms = round(time.time() * 1000)
        definition, dependents, identities, lead_ms, own_uuid, process = "", {}, {}, 0, "", ("", "", 0)
        for database, name, query, *dependent, uuid, altered, engine, server, display, marked, start, now_ms in tables:
            # The same in every row.
            process, lead_ms = (server, display, start), now_ms - local_ms
            if (database, name) == MARKED_TABLE:
                own_uuid = marked
                continue
            if (database, name) == written.target:
                # CREATE TABLE up to the engine: the columns and constraints.
                definition = str(query).partition(f" ENGINE = {engine}")[0]
            dependents[database, name] = frozenset(zip(*dependent, strict=True))
            identities[database, name] = TableIdentity.of(uuid, altered, engine)
        server, display_name, started_ms = process
        run = ServerRun.of_marked(server, display_name, own_uuid, started_ms)
        if written.target not in dependents:
            raise TableProblem(
                f"{'.'.join(written.target)} no longer exists; recreate it or correct {self.config.sink.paths.table}, "
                "then start the pipeline again"
            )
        return _QueryResult(definition, dependents, identities, run, lead_ms)
