"""Descriptions of tables, read from ClickHouse's system tables; no data is scanned."""

from collections.abc import Iterable
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import Mapping
from glassflow_dagster.definition.model.types import ColumnType, parse_written_type
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import full_name
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.sql_text import columns_with_ttl

# Engines beside MergeTree that store every inserted row themselves.
_KEEPS_ROWS = ("Log", "TinyLog", "StripeLog", "Memory")


@dataclass(frozen=True)
class Column:
    """A column: its type, the kind of its default expression (`DEFAULT`, `MATERIALIZED`, ... or ''), its type's text.

    type: as which values are written (`written_as`).
    text: the type exactly as the server writes it.
    has_ttl: of its own, after which the server empties its values.
    """

    type: ColumnType
    default_kind: str
    text: str
    has_ttl: bool = False


@dataclass(frozen=True)
class Table:
    """A table as the server describes it.

    rows: the row count by the table's metadata, or counted where there is none.
    ttl: whether rows expire.
    clock_columns: columns that the mapping leaves to the server's clock (`DEFAULT now()`) and that the pipeline fills
        with the batch time instead, because a partition key depends on them.
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
    def full_name(self) -> str:
        """Database and name as `database.table`, for messages and the ledger; not quoted."""
        return f"{self.database}.{self.name}"

    @property
    def is_plain(self) -> bool:
        """True when rows stay as they were inserted: plain MergeTree (no merging by key), no TTL."""
        return self.family == "MergeTree" and not self.ttl

    @property
    def merges_rows(self) -> bool:
        """True when background merges replace, sum or collapse rows with the same sorting key."""
        return self.family.endswith("MergeTree") and self.family != "MergeTree"

    @property
    def may_hold_fewer(self) -> bool:
        """True when it may hold fewer rows than were inserted: it merges, has a TTL, or its engine stores no rows."""
        return self.merges_rows or self.ttl or not (self.family == "MergeTree" or self.engine in _KEEPS_ROWS)

    @property
    def family(self) -> str:
        """The engine's name without the prefix Replicated or Shared."""
        return self.engine.removeprefix("Replicated").removeprefix("Shared")


def find_table(client: Client, database: str, name: str) -> Table | None:
    """Return a table's description; None when there is no such table."""
    where = {"database": database, "name": name}
    tables = fetch(
        client,
        "SELECT engine, engine_full, create_table_query, total_rows, sorting_key, partition_key FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String}",
        where,
    )
    if not tables:
        return None
    engine, engine_full, create_query, rows, sorting_key, partition_key = tables[0]
    with_ttl = columns_with_ttl(create_query)
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
        columns={
            column: Column(_column_type(kind), default_kind, kind, has_ttl=column in with_ttl)
            for column, kind, default_kind in columns
        },
        # NULL for engines that do not know their number of rows, such as views.
        rows=int(rows) if rows is not None else count_rows(client, database, name),
        ttl=" TTL " in engine_full,
        sorting_key=sorting_key,
        partition_key=partition_key,
    )


def require_table(client: Client, database: str, name: str) -> Table:
    """Return the description of a pipeline's target; raises `TableProblem` when the table is missing."""
    table = find_table(client, database, name)
    if table is None:
        raise TableProblem(
            f"{database}.{name} does not exist; start the pipeline, which creates it or reports why it cannot"
        )
    return table


def count_rows(client: Client, database: str, name: str) -> int:
    """Return a table's row count; MergeTree answers from its metadata."""
    return int(fetch(client, f"SELECT count() FROM {full_name(database, name)}")[0][0])


def count_by_table(client: Client, tables: Iterable[Table]) -> dict[str, int]:
    """Return the row counts of several tables: database.table -> rows."""
    return {table.full_name: count_rows(client, table.database, table.name) for table in tables}


def filled_columns(config: PipelineConfig, table: Table) -> tuple[Mapping, ...]:
    """Return the definition's mapping, and one of `_batch_time` for each of the table's `clock_columns`.

    These are the columns that are filled with the batch time instead of the server's clock.
    """
    clocks = (
        Mapping(name="_batch_time", column_name=name, column_type=str(table.columns[name].type))
        for name in table.clock_columns
    )
    return (*config.sink.mapping, *clocks)


def _column_type(text: str) -> ColumnType:
    """Return the type as which a column's values are written; of a text that cannot be parsed, that as the name."""
    try:
        return parse_written_type(text)
    except ValueError:
        return ColumnType(text)
