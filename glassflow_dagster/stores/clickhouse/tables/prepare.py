"""Preparation of the target table: it is created, gets missing columns, or is rejected with the reasons."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import incomplete_reason
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import quote_name
from glassflow_dagster.stores.clickhouse.layout import is_replicated
from glassflow_dagster.stores.clickhouse.names import has_table
from glassflow_dagster.stores.clickhouse.queries import execute, fetch, translate_errors
from glassflow_dagster.stores.clickhouse.server_run import require_one_server
from glassflow_dagster.stores.clickhouse.table import Table, find_table
from glassflow_dagster.stores.clickhouse.tables import ddl
from glassflow_dagster.stores.clickhouse.tables.differences import Difference, differences
from glassflow_dagster.stores.clickhouse.tables.distributed import require_repeatable
from glassflow_dagster.stores.clickhouse.tables.partition_keys import PartitionKeys
from glassflow_dagster.stores.clickhouse.tables.views import TableId, find_written_tables
from glassflow_dagster.stores.clickhouse.tables.window_changes import WindowNotes, switch_on_windows

_logger = logging.getLogger(__name__)

_AT_LEAST_ONCE = "a batch that is repeated after a failure may duplicate rows, as sink.delivery: at_least_once allows"


def prepare_target(client: Client, config: PipelineConfig, *, create: bool) -> Table:
    """Return the target, created if it is missing; raise `TableProblem` unless it takes the mapping's rows.

    A missing target is created only with `create` or `sink.create_table`. The error has one line, with the remedy, for
    each difference that stops the pipeline.
    """
    table = find_target(client, config)
    if table is None:
        if not create and config.sink.create_table is None:
            raise TableProblem(
                f"{config.sink.paths.table}: {missing_target(config)}; run with --create-table, add "
                f"{config.sink.paths.create_table}, or create it: glassflow-dagster table FILE --create (--print shows "
                "the statement)"
            )
        table = create_target(client, config)
    stopping = [str(difference) for difference in differences(config, table) if difference.stops]
    if stopping:
        raise TableProblem("\n".join(stopping))
    return table


def find_target(client: Client, config: PipelineConfig) -> Table | None:
    """Return the target; None when it is missing.

    Raises `TableProblem` when it is missing, and the connection's database has a table with the whole of its name.
    """
    sink = config.sink
    table = find_table(client, *sink.full_table)
    own = sink.connection_params.database
    is_plain = "." in sink.table and "`" not in sink.table
    if table is None and is_plain and has_table(client, own, sink.table):
        raise TableProblem(
            f"{sink.paths.table}: {missing_target(config)}, but {own} has a table {quote_name(sink.table)}; write "
            f"{own}.{sink.table}, or {quote_name(sink.table)} with the backquotes"
        )
    return table


def missing_target(config: PipelineConfig) -> str:
    """Return the text that the target is missing, which says how its name is read where it has several dots."""
    database, table = config.sink.full_table
    read = f" (table {table} of database {database})" if "." in f"{database}{table}" else ""
    return f"{config.sink.table_name}{read} does not exist"


def secure_target(
    client: Client,
    config: PipelineConfig,
    table: Table,
    notes: WindowNotes,
    warn: Callable[[str], None] = _logger.warning,
) -> Table:
    """Ensure that a repeated batch doubles no rows in the target and its views' targets; switch on token windows.

    notes: of the connection's database, whose bookkeeping tables must exist. Returns the table with its
    `clock_columns`. Raises `TableProblem` with a line for each reason why rows may be doubled; with
    `delivery: at_least_once` the reasons are passed to `warn` instead. Views that the user cannot see are passed to
    `warn` in any case.
    """
    filled, path = {mapping.column_name for mapping in config.sink.mapping}, config.sink.paths.table
    exactly_once = config.sink.delivery == "exactly_once"
    if table.engine == "Distributed" and exactly_once:
        # It stores neither rows nor tokens: the tables of its shards must do that.
        require_repeatable(client, table, filled, path)
        _require_one_server(client, [notes.bookkeeping_table])
        return table
    written = find_written_tables(client, table.database, table.name)
    _require_one_server(client, [*written.table_ids, notes.bookkeeping_table])
    for database, view in written.hidden:
        warn(
            f"view {database}.{view} reads {'.'.join(written.target)} or one of its view targets, but this user "
            "cannot see the view, so it is not known whether a repeated batch duplicates rows in its target; grant "
            "SHOW TABLES on the view and on its target"
        )
    keys = PartitionKeys(client, written, filled)
    faults = [str(fault) for fault in keys.faults()]
    # Raised before `switch_on_windows` alters any table.
    if exactly_once and faults:
        raise TableProblem("\n".join(f"{path}: {fault}" for fault in faults))
    problems = [*faults, *switch_on_windows(client, config, written, notes, warn)]
    if exactly_once and problems:
        raise TableProblem("\n".join(f"{path}: {problem}" for problem in problems))
    for problem in problems:
        warn(f"{_AT_LEAST_ONCE} ({problem})")
    return replace(table, clock_columns=tuple(sorted(keys.clocks)))


def _require_one_server(client: Client, table_ids: Iterable[TableId]) -> None:
    """Raise `ClickHouseRefused` when one of the tables is not replicated and the address leads to several servers."""
    for database, name in table_ids:
        query = "SELECT engine FROM system.tables WHERE database = {database:String} AND name = {name:String}"
        engines = fetch(client, query, {"database": database, "name": name})
        if engines and not is_replicated(engines[0][0]):
            translate_errors(client, partial(require_one_server, client, f"{database}.{name}"))
            return


def create_target(client: Client, config: PipelineConfig) -> Table:
    """Create the target and its database unless they exist; return the table as the server describes it.

    Raises `TableProblem` when a mapping's type is incomplete (allowed for existing tables only), and with the statement
    when the server rejects it.
    """
    database, name = config.sink.full_table
    incomplete = [
        f"{config.sink.paths.mapping}[{index}].column_type: {reason}"
        for index, mapping in enumerate(config.sink.mapping)
        if (reason := incomplete_reason(mapping.parsed_type))
    ]
    if incomplete:
        raise TableProblem("\n".join(incomplete))
    ddl.ensure_database(client, database, config.sink.cluster)
    execute(client, ddl.create_target(config))
    table = find_table(client, database, name)
    if table is None:
        raise TableProblem(f"{database}.{name} was dropped while the pipeline prepared it; start the pipeline again")
    return table


def add_missing_columns(
    client: Client, config: PipelineConfig, table: Table, report: Callable[[str], None]
) -> list[Difference]:
    """Add the columns that the table lacks, and pass each executed statement to `report`; return the differences left.

    Nothing is dropped and no type is changed. A table of another engine than MergeTree's family is left unchanged.
    Raises `TableProblem` when the table is dropped meanwhile.
    """
    before = list(differences(config, table))
    if not table.family.endswith("MergeTree"):
        return before
    for difference in before:
        if difference.missing:
            statement = ddl.add_column(table.database, table.name, difference.missing)
            execute(client, statement)
            report(statement)
    altered = find_table(client, table.database, table.name)
    if altered is None:
        raise TableProblem(f"{table.full_name} was dropped while the pipeline altered it; find out what dropped it")
    return list(differences(config, altered))
