"""The target as it is, and whether the definition's rows fit it.

Everything is read from ClickHouse's system tables; no data is scanned. The table has the last word on nullability,
LowCardinality and the members of an Enum; the definition on which columns are filled.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse import ddl
from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import full_name
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.token_window import ensure_tokens_kept
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.problems import suggestion
from glassflow_dagster.config.types import ColumnType, parse_column_type, same_values

# Columns that ClickHouse computes itself, and why an insert cannot name them.
_COMPUTED = ("MATERIALIZED", "ALIAS")


@dataclass(frozen=True)
class Column:
    """A column: its type, and how it gets a value that no insert gives (`DEFAULT`, `MATERIALIZED`, ... or '')."""

    type: ColumnType
    default_kind: str


@dataclass(frozen=True)
class Table:
    """A table as the server describes it; `rows` comes from its metadata, or is counted where it has none."""

    database: str
    name: str
    engine: str
    engine_full: str
    columns: dict[str, Column]
    rows: int
    ttl: bool
    sorting_key: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether rows stay as they were inserted: no merging by key, no expiry."""
        return self.family == "MergeTree" and not self.ttl

    @property
    def merges_rows(self) -> bool:
        """Whether background merges replace, sum or collapse rows with the same sorting key."""
        return self.family.endswith("MergeTree") and self.family != "MergeTree"

    @property
    def family(self) -> str:
        """The engine without the prefixes that say where its parts are kept."""
        return self.engine.removeprefix("Replicated").removeprefix("Shared")


def find_table(client: Client, database: str, name: str) -> Table | None:
    """Read what the server says of a table; None when there is no such table."""
    where = {"database": database, "name": name}
    found = fetch(
        client,
        "SELECT engine, engine_full, total_rows, sorting_key FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String}",
        where,
    )
    if not found:
        return None
    engine, engine_full, rows, sorting_key = found[0]
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
    )


def require_table(client: Client, database: str, name: str) -> Table:
    """Read what the server says of a pipeline's target; raises `TableProblem` when it is missing."""
    table = find_table(client, database, name)
    if table is None:
        raise TableProblem(f"{database}.{name} does not exist; start the pipeline, which creates it or says why not")
    return table


def count_rows(client: Client, database: str, name: str) -> int:
    """Count a table's rows; MergeTree answers from its metadata."""
    return int(fetch(client, f"SELECT count() FROM {full_name(database, name)}")[0][0])  # noqa: S608 - quoted


def prepare_target(client: Client, config: PipelineConfig, *, create: bool) -> Table:
    """Make sure that the target is there, takes the mapping's rows and remembers insert tokens.

    It is created when it is missing and `create` or `sink.create_table` says so. Raises `TableProblem` with one line
    for every misfit, each with its remedy.
    """
    database, name = config.sink.full_table
    table = find_table(client, database, name)
    if table is None:
        table = _create(client, config, create=create)
    found = list(misfits(config, table))
    if found:
        raise TableProblem("\n".join(found))
    ensure_tokens_kept(client, database, name)
    return table


def misfits(config: PipelineConfig, table: Table) -> Iterator[str]:
    """Yield a line for every mapped column that the table lacks, computes itself or types otherwise."""
    where = f"{table.database}.{table.name}"
    for index, mapping in enumerate(config.sink.mapping):
        at, column = f"sink.mapping[{index}]", table.columns.get(mapping.column_name)
        if column is None:
            near = suggestion(mapping.column_name, list(table.columns))
            yield f"{at}.column_name: {where} has no column {mapping.column_name!r}; {near}"
        elif column.default_kind in _COMPUTED:
            yield (
                f"{at}.column_name: {where} computes column {mapping.column_name!r} itself ({column.default_kind}); "
                "remove it from the mapping"
            )
        elif not same_values(mapping.parsed_type, column.type):
            yield (
                f"{at}.column_type: is {mapping.column_type}, but column {mapping.column_name!r} of {where} is "
                f"{column.type}; change one of them"
            )


def _create(client: Client, config: PipelineConfig, *, create: bool) -> Table:
    database, name = config.sink.full_table
    statement = ddl.create_target(config)
    if not create and config.sink.create_table is None:
        raise TableProblem(
            f"sink.table: {database}.{name} does not exist; run with --create-table, add sink.create_table, or run: "
            f"{statement}"
        )
    ddl.ensure_database(client, database)
    execute(client, statement)
    table = find_table(client, database, name)
    if table is None:
        raise TableProblem(f"{database}.{name} was dropped while it was being prepared; start again")
    return table


def _column_type(text: str) -> ColumnType:
    """Read a column's type; one that no mapping can name (a named tuple, say) stands as it is written."""
    try:
        return parse_column_type(text)
    except ValueError:
        return ColumnType(text)
