"""Notes on tables whose token window a pipeline switched on or relies on, with the settings they had before."""

from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.ledger import LEDGER
from glassflow_dagster.stores.bookkeeping.schema import PIPELINE_ID, WRITE_EVERYWHERE, BookkeepingTable, Column
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.tables.views import TableId
from glassflow_dagster.stores.clickhouse.tables.window_changes import WindowChange

WINDOWS = BookkeepingTable(
    "glassflow_windows",
    (
        PIPELINE_ID,
        Column("database", "String"),
        Column("table", "String"),
        Column("before", "Map(String, String)"),
        Column("released", "Bool"),
    ),
    order_by="(pipeline_id, database, table)",
    settings=WRITE_EVERYWHERE,
)


@dataclass(frozen=True)
class Windows:
    """The notes of a database's pipelines (a `WindowNotes`). Methods raise what `fetch` and `execute` raise.

    Notes are only appended; of a pipeline's notes on a table the latest counts.
    """

    client: Client
    database: str

    @property
    def bookkeeping_table(self) -> TableId:
        """The ledger, in the name of all bookkeeping tables."""
        return self.database, LEDGER.name

    def switched_on(self, pipeline_id: str) -> list[WindowChange]:
        """Return the token windows that a pipeline switched on or relies on, and has not released."""
        rows = fetch(
            self.client,
            f"SELECT database, table, argMax(before, inserted_at) FROM {WINDOWS.full_name(self.database)} "
            "WHERE pipeline_id = {pipeline:String} GROUP BY 1, 2 HAVING NOT argMax(released, inserted_at) "
            "ORDER BY 1, 2",
            {"pipeline": pipeline_id},
        )
        return [WindowChange(database, table, dict(before)) for database, table, before in rows]

    def pipelines_relying_on(self, table_id: TableId) -> set[str]:
        """Return the ids of the pipelines that rely on a table's token window."""
        rows = fetch(
            self.client,
            f"SELECT pipeline_id FROM {WINDOWS.full_name(self.database)} "
            "WHERE database = {database:String} AND table = {name:String} "
            "GROUP BY 1 HAVING NOT argMax(released, inserted_at)",
            {"database": table_id[0], "name": table_id[1]},
        )
        return {pipeline for (pipeline,) in rows}

    def note_switched_on(self, pipeline_id: str, change: WindowChange) -> None:
        """Insert a note that a pipeline relies on a token window from now on."""
        self._note(pipeline_id, change, released=False)

    def note_released(self, pipeline_id: str, change: WindowChange) -> None:
        """Insert a note that a pipeline no longer relies on a token window."""
        self._note(pipeline_id, change, released=True)

    def _note(self, pipeline_id: str, change: WindowChange, *, released: bool) -> None:
        """Insert a note on a table, with the settings that it had before the pipeline's change."""
        WINDOWS.insert_row(
            self.client,
            self.database,
            {
                "pipeline_id": pipeline_id,
                "database": change.database,
                "table": change.table,
                "before": change.before,
                "released": released,
            },
        )
