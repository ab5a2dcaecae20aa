"""Tables as the server describes them.

Everything is read from ClickHouse's system tables; no data is scanned.
"""

from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import full_name
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.sink import Mapping
from glassflow_dagster.config.model.types import ColumnType, parse_column_type

# Engines beside MergeTree that hold the rows that were written to them themselves, every one.
_KEEPS_ROWS = ("Log", "TinyLog", "StripeLog", "Memory")


@dataclass(frozen=True)
class Column:
    """A column: its type, and how it gets a value that no insert gives (`DEFAULT`, `MATERIALIZED`, ... or '')."""

    type: ColumnType
    default_kind: str


@dataclass(frozen=True)
class Table:
    """A table as the server describes it; `rows` comes from its metadata, or is counted where it has none.

    clock_columns: those that no field fills and that the pipeline fills with the batch's time in place of the server's.
    """

    database: str
    name: str
    engine: str
    engine_full: str
    columns: dict[str, Column]
    rows: int
    ttl: bool
    sorting_key: str = ""
    partition_key: str = ""
    clock_columns: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether rows stay as they were inserted: no merging by key, no expiry."""
        return self.family == "MergeTree" and not self.ttl

    @property
    def merges_rows(self) -> bool:
        """Whether background merges replace, sum or collapse rows with the same sorting key."""
        return self.family.endswith("MergeTree") and self.family != "MergeTree"

    @property
    def may_hold_fewer(self) -> bool:
        """Whether it lawfully holds fewer rows than were written to it: merges, an expiry, or rows kept elsewhere."""
        return self.merges_rows or self.ttl or not (self.family == "MergeTree" or self.engine in _KEEPS_ROWS)

    @property
    def family(self) -> str:
        """The engine without the prefixes that say where its parts are kept."""
        return self.engine.removeprefix("Replicated").removeprefix("Shared")


def find_table(client: Client, database: str, name: str) -> Table | None:
    """Read what the server says of a table; None when there is no such table."""
    where = {"database": database, "name": name}
    found = fetch(
        client,
        "SELECT engine, engine_full, total_rows, sorting_key, partition_key FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String}",
        where,
    )
    if not found:
        return None
    engine, engine_full, rows, sorting_key, partition_key = found[0]
    columns = fetch(
        client,
        "SELECT name, type, default_kind FROM system.columns "
        "WHERE database = {database:String} AND table = {name:String} ORDER BY position",
        where,
    )
    return Table(
        database=database,
        name=name,
        engine=engine,
        engine_full=engine_full,
        columns={column: Column(_column_type(kind), default) for column, kind, default in columns},
        rows=int(rows) if rows is not None else count_rows(client, database, name),
        ttl=" TTL " in engine_full,
        sorting_key=sorting_key,
        partition_key=partition_key,
    )


def require_table(client: Client, database: str, name: str) -> Table:
    """Read what the server says of a pipeline's target; raises `TableProblem` when it is missing."""
    table = find_table(client, database, name)
    if table is None:
        raise TableProblem(f"{database}.{name} does not exist; start the pipeline, which creates it or says why not")
    return table


def count_rows(client: Client, database: str, name: str) -> int:
    """Count a table's rows; MergeTree answers from its metadata."""
    return int(fetch(client, f"SELECT count() FROM {full_name(database, name)}")[0][0])


def filled_columns(config: PipelineConfig, table: Table) -> tuple[Mapping, ...]:
    """Give what fills the table's columns: the definition's mapping, and the batch's time."""
    clocks = (
        Mapping(name="_batch_time", column_name=name, column_type=str(table.columns[name].type))
        for name in table.clock_columns
    )
    return (*config.sink.mapping, *clocks)


def _column_type(text: str) -> ColumnType:
    """Read a column's type; one that no mapping can name (an AggregateFunction, say) stands as it is written."""
    try:
        return parse_column_type(text)
    except ValueError:
        return ColumnType(text)
