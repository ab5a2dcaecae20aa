"""Looks at the target before each batch: a view that appears while the pipeline runs must be as safe as the others.

One question a batch: the target's definition, which tables depend on those that the pipeline writes to, and which run
of the server answers. What depends on them is looked at closely only where it has changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import quote_text
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.server_run import RUN_COLUMNS, ServerRun
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.clickhouse.target import secure_target
from glassflow_dagster.clickhouse.views import Place, WrittenTables, find_written_tables
from glassflow_dagster.config.model import PipelineConfig


@dataclass(frozen=True)
class TargetState:
    """The target as a batch finds it.

    definition: its columns and constraints as the server writes them. written: the tables that an insert reaches, as
    `database.table`.
    """

    definition: str
    written: tuple[str, ...]
    run: ServerRun


@dataclass
class TargetWatch:
    """The target of a running pipeline. warn: who is told of views that cannot be seen."""

    client: Client
    config: PipelineConfig
    table: Table
    warn: Callable[[str], None]
    _written: WrittenTables | None = None
    _dependents: dict[Place, frozenset[Place]] = field(default_factory=dict)

    def look(self) -> TargetState:
        """Give the target as it is; raises `TableProblem` where a repeated batch may double rows behind a new view."""
        if self._written is None:
            self._written = find_written_tables(self.client, self.table.database, self.table.name)
            _, self._dependents, _ = self._ask(self._written)
        definition, dependents, run = self._ask(self._written)
        if dependents != self._dependents:
            secured = secure_target(self.client, self.config, self.table, self.warn)
            if secured.clock_columns != self.table.clock_columns:
                raise TableProblem(
                    f"sink.table: a view behind {self.table.database}.{self.table.name} was made or changed, and its "
                    f"table is partitioned by what the server's clock fills ({', '.join(secured.clock_columns)}); "
                    "start the pipeline again, which fills it with the batch's time then"
                )
            self._written = find_written_tables(self.client, self.table.database, self.table.name)
            definition, self._dependents, run = self._ask(self._written)
        return TargetState(definition, tuple(".".join(place) for place in self._written.places), run)

    def _ask(self, written: WrittenTables) -> tuple[str, dict[Place, frozenset[Place]], ServerRun]:
        places = ", ".join(f"({quote_text(database)}, {quote_text(name)})" for database, name in written.places)
        found = fetch(
            self.client,
            "SELECT database, name, create_table_query, engine_full, dependencies_database, dependencies_table, "  # noqa: S608
            f"{RUN_COLUMNS} FROM system.tables WHERE (database, name) IN ({places})",
        )
        definition, dependents = "", {}
        run = ServerRun(server="", process="", started_ms=0)
        for database, name, query, engine, databases, names, *described in found:
            if (database, name) == written.target:
                definition = str(query).partition(f" ENGINE = {engine}")[0]
            dependents[database, name] = frozenset(zip(databases, names, strict=True))
            run = ServerRun.of(*described)
        if written.target not in dependents:
            raise TableProblem(
                f"{'.'.join(written.target)} is gone; make it again, or correct sink.table, and start again"
            )
        return definition, dependents, run
