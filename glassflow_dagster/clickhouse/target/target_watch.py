"""A check of the target before each batch: a view that is created while the pipeline runs must not double rows either.

One query per batch reads the target's definition, the views that read the written tables, and the server's run. The
views themselves are examined only when their set has changed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import quote_text
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.server_run import MARKED_RUN_COLUMNS, MARKED_TABLE, ServerRun
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.clickhouse.target.prepare import secure_target
from glassflow_dagster.clickhouse.target.views import TableId, WrittenTables, find_written_tables
from glassflow_dagster.clickhouse.target.window_changes import WindowNotes
from glassflow_dagster.config.model.pipeline import PipelineConfig


@dataclass(frozen=True)
class TargetState:
    """The state of the target when a batch begins.

    definition: its columns and constraints as the server formats them. written: the target and its views' targets, as
    `database.table`. run: the server's run. lead_ms: milliseconds by which the server's clock is ahead of this
    machine's.
    """

    definition: str
    written: tuple[str, ...]
    run: ServerRun
    lead_ms: int


@dataclass(frozen=True)
class _QueryResult:
    """The result of the query; dependents: written table -> the views and tables that read it."""

    definition: str
    dependents: dict[TableId, frozenset[TableId]]
    run: ServerRun
    lead_ms: int


@dataclass
class TargetWatch:
    """The target of a running pipeline.

    notes: on the deduplication windows that the pipeline has set. warn: receives warnings about views that the user
    cannot see.
    """

    client: Client
    config: PipelineConfig
    table: Table
    notes: WindowNotes
    warn: Callable[[str], None]
    _written: WrittenTables | None = None
    _dependents: dict[TableId, frozenset[TableId]] = field(default_factory=dict)

    def read(self) -> TargetState:
        """Return the target's current state; the first call also finds the tables that an insert writes to.

        When other views or tables than before read the written tables, the target is secured again (`secure_target`).
        Raises `TableProblem` when rows may be doubled, or when the batch time must fill other columns than before.
        """
        if self._written is None:
            self._written = find_written_tables(self.client, self.table.database, self.table.name)
            self._dependents = self._query(self._written).dependents
        current = self._query(self._written)
        if current.dependents != self._dependents:
            secured = secure_target(self.client, self.config, self.table, self.notes, self.warn)
            if secured.clock_columns != self.table.clock_columns:
                raise TableProblem(
                    f"{self.config.sink.paths.table}: a view of {self.table.full_name} was created or "
                    "changed, and its table is partitioned by columns that the server's clock fills "
                    f"({', '.join(secured.clock_columns)}); start the pipeline again; it then fills them with the "
                    "batch time"
                )
            self._written = find_written_tables(self.client, self.table.database, self.table.name)
            current = self._query(self._written)
            self._dependents = current.dependents
        written = tuple(".".join(table_id) for table_id in self._written.table_ids)
        return TargetState(current.definition, written, current.run, current.lead_ms)

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
            "SELECT database, name, create_table_query, engine_full, dependencies_database, dependencies_table, "
            f"{MARKED_RUN_COLUMNS}, toUnixTimestamp64Milli(now64(3)) FROM system.tables "
            # The server looks through all databases for pairs, and only through these for single names.
            f"WHERE database IN ({databases}) AND name IN ({names}) AND (database, name) IN ({ids})",
        )
        local_ms = round(time.time() * 1000)
        definition, dependents, lead_ms, uuid, process = "", {}, 0, "", ("", "", 0)
        for database, name, query, engine, *dependent, server, display_name, own_uuid, started_ms, now_ms in tables:
            # The same in every row.
            process, lead_ms = (server, display_name, started_ms), now_ms - local_ms
            if (database, name) == MARKED_TABLE:
                uuid = own_uuid
                continue
            if (database, name) == written.target:
                # CREATE TABLE up to the engine: the columns and constraints.
                definition = str(query).partition(f" ENGINE = {engine}")[0]
            dependents[database, name] = frozenset(zip(*dependent, strict=True))
        server, display_name, started_ms = process
        run = ServerRun.of_marked(server, display_name, uuid, started_ms)
        if written.target not in dependents:
            raise TableProblem(
                f"{'.'.join(written.target)} no longer exists; recreate it or correct {self.config.sink.paths.table}, "
                "then start the pipeline again"
            )
        return _QueryResult(definition, dependents, run, lead_ms)
