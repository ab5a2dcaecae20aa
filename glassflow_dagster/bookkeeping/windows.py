"""Tables whose window of insert tokens a pipeline has switched on, or rests on: what their own settings said before."""

from collections.abc import Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.ledger import LEDGER
from glassflow_dagster.bookkeeping.schema import PIPELINE_ID, WRITE_EVERYWHERE, BookkeepingTable, Column
from glassflow_dagster.clickhouse.identifiers import quote_text
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.target.views import Place
from glassflow_dagster.clickhouse.target.window_changes import WindowChange

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
    """The `WindowNotes` of a database's pipelines. Methods raise what `fetch` and `execute` raise."""

    client: Client
    database: str

    @property
    def bookkeeping_table(self) -> Place:
        """The ledger: it stands for all bookkeeping tables."""
        return self.database, LEDGER.name

    def switched_on(self, pipeline_id: str) -> list[WindowChange]:
        """Read the windows that a pipeline has switched on, or rests on."""
        rows = fetch(
            self.client,
            f"SELECT database, table, argMax(before, inserted_at) FROM {WINDOWS.full_name(self.database)} "
            "WHERE pipeline_id = {pipeline:String} GROUP BY 1, 2 HAVING NOT argMax(released, inserted_at) "
            "ORDER BY 1, 2",
            {"pipeline": pipeline_id},
        )
        return [WindowChange(database, table, dict(before)) for database, table, before in rows]

    def resting_on(self, place: Place) -> set[str]:
        """Read which pipelines rest on a table's window."""
        rows = fetch(
            self.client,
            f"SELECT pipeline_id FROM {WINDOWS.full_name(self.database)} "
            "WHERE database = {database:String} AND table = {name:String} "
            "GROUP BY 1 HAVING NOT argMax(released, inserted_at)",
            {"database": place[0], "name": place[1]},
        )
        return {pipeline for (pipeline,) in rows}

    def note_switched_on(self, pipeline_id: str, change: WindowChange) -> None:
        """Write down that a pipeline rests on a window from now on."""
        self._note(pipeline_id, change, released=False)

    def note_released(self, pipeline_id: str, change: WindowChange) -> None:
        """Write down that a pipeline rests on a window no more."""
        self._note(pipeline_id, change, released=True)

    def _note(self, pipeline_id: str, change: WindowChange, *, released: bool) -> None:
        execute(
            self.client,
            f"INSERT INTO {WINDOWS.full_name(self.database)} ({', '.join(WINDOWS.column_names)}) "
            f"{WINDOWS.settings_clause} "
            f"SELECT {{pipeline:String}}, {{database:String}}, {{name:String}}, {_map(change.before)}, {int(released)}",
            {"pipeline": pipeline_id, "database": change.database, "name": change.table},
        )


def _map(pairs: Mapping[str, str]) -> str:
    texts = ", ".join(quote_text(text) for pair in pairs.items() for text in pair)
    return f"map({texts})" if texts else "CAST(map(), 'Map(String, String)')"
