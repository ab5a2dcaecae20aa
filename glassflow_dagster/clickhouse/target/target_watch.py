"""Looks at the target before each batch: a view that appears while the pipeline runs must be as safe as the others.

One question a batch: the target's definition, which tables depend on those that the pipeline writes to, and which run
of the server answers. What depends on them is looked at closely only where it has changed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import quote_text
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.server_run import RUN_COLUMNS, ServerRun
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.clickhouse.target.prepare import secure_target
from glassflow_dagster.clickhouse.target.views import Place, WrittenTables, find_written_tables
from glassflow_dagster.clickhouse.target.window_changes import WindowNotes
from glassflow_dagster.config.model.pipeline import PipelineConfig


@dataclass(frozen=True)
class TargetState:
    """The target as a batch finds it.

    definition: its columns and constraints as the server writes them. written: the tables that an insert reaches, as
    `database.table`. lead_ms: how far the server's clock is ahead of this machine's, in milliseconds.
    """

    definition: str
    written: tuple[str, ...]
    run: ServerRun
    lead_ms: int


@dataclass(frozen=True)
class _Answer:
    definition: str
    dependents: dict[Place, frozenset[Place]]
    run: ServerRun
    lead_ms: int


@dataclass
class TargetWatch:
    """The target of a running pipeline.

    notes: of its database. warn: who is told of views that cannot be seen.
    """

    client: Client
    config: PipelineConfig
    table: Table
    notes: WindowNotes
    warn: Callable[[str], None]
    _written: WrittenTables | None = None
    _dependents: dict[Place, frozenset[Place]] = field(default_factory=dict)

    def look(self) -> TargetState:
        """Give the target as it is; raises `TableProblem` where a repeated batch may double rows behind a new view."""
        if self._written is None:
            self._written = find_written_tables(self.client, self.table.database, self.table.name)
            self._dependents = self._ask(self._written).dependents
        found = self._ask(self._written)
        if found.dependents != self._dependents:
            secured = secure_target(self.client, self.config, self.table, self.notes, self.warn)
            if secured.clock_columns != self.table.clock_columns:
                raise TableProblem(
                    f"sink.table: a view behind {self.table.database}.{self.table.name} was made or changed, and its "
                    f"table is partitioned by what the server's clock fills ({', '.join(secured.clock_columns)}); "
                    "start the pipeline again, which fills it with the batch's time then"
                )
            self._written = find_written_tables(self.client, self.table.database, self.table.name)
            found = self._ask(self._written)
            self._dependents = found.dependents
        places = tuple(".".join(place) for place in self._written.places)
        return TargetState(found.definition, places, found.run, found.lead_ms)

    def _ask(self, written: WrittenTables) -> _Answer:
        places = ", ".join(f"({quote_text(database)}, {quote_text(name)})" for database, name in written.places)
        found = fetch(
            self.client,
            "SELECT database, name, create_table_query, engine_full, dependencies_database, dependencies_table, "
            f"{RUN_COLUMNS}, toUnixTimestamp64Milli(now64(3)) FROM system.tables WHERE (database, name) IN ({places})",
        )
        own_ms = round(time.time() * 1000)
        definition, dependents, lead_ms = "", {}, 0
        run = ServerRun(server="", process="", started_ms=0)
        for database, name, query, engine, databases, names, *described, now_ms in found:
            if (database, name) == written.target:
                definition = str(query).partition(f" ENGINE = {engine}")[0]
            dependents[database, name] = frozenset(zip(databases, names, strict=True))
            run, lead_ms = ServerRun.of(*described), now_ms - own_ms
        if written.target not in dependents:
            raise TableProblem(
                f"{'.'.join(written.target)} is gone; make it again, or correct sink.table, and start again"
            )
        return _Answer(definition, dependents, run, lead_ms)
