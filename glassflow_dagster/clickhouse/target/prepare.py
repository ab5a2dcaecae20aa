"""The target table, made ready for a pipeline: created, given missing columns, or refused with what is in the way."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.queries import asked, execute, fetch
from glassflow_dagster.clickhouse.server_run import require_one_server
from glassflow_dagster.clickhouse.tables import Table, find_table
from glassflow_dagster.clickhouse.target import ddl
from glassflow_dagster.clickhouse.target.differences import Difference, differences
from glassflow_dagster.clickhouse.target.distributed import require_repeatable
from glassflow_dagster.clickhouse.target.partition_keys import PartitionKeys
from glassflow_dagster.clickhouse.target.token_window import is_replicated
from glassflow_dagster.clickhouse.target.views import Place, find_written_tables
from glassflow_dagster.clickhouse.target.window_changes import WindowNotes, switch_on_windows
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.types import incomplete_reason

_logger = logging.getLogger(__name__)

_AT_LEAST_ONCE = "a batch that is repeated after a failure may double rows, as sink.delivery: at_least_once allows"


def prepare_target(client: Client, config: PipelineConfig, *, create: bool) -> Table:
    """Make sure that the target is there and takes the mapping's rows.

    It is created when it is missing and `create` or `sink.create_table` says so. Raises `TableProblem` with one line
    for every difference that stops the pipeline, each with its remedy.
    """
    database, name = config.sink.full_table
    table = find_table(client, database, name)
    if table is None:
        if not create and config.sink.create_table is None:
            raise TableProblem(
                f"sink.table: {database}.{name} does not exist; run with --create-table, add sink.create_table, or "
                "create it: glassflow-dagster table FILE --create (--print shows the statement)"
            )
        table = create_target(client, config)
    stopping = [str(difference) for difference in differences(config, table) if difference.stops]
    if stopping:
        raise TableProblem("\n".join(stopping))
    return table


def secure_target(
    client: Client,
    config: PipelineConfig,
    table: Table,
    notes: WindowNotes,
    warn: Callable[[str], None] = _logger.warning,
) -> Table:
    """See that a batch that is repeated doubles nothing, in the target and behind its views.

    notes: of the pipeline's database, whose bookkeeping tables must exist.
    Gives the table with its `clock_columns`. Raises `TableProblem` with a line for each reason why it would. With
    `delivery: at_least_once` the reasons are told to `warn` instead, and so is what cannot be seen.
    """
    filled = {mapping.column_name for mapping in config.sink.mapping}
    exactly_once = config.sink.delivery == "exactly_once"
    if table.engine == "Distributed" and exactly_once:
        require_repeatable(client, table, filled)
        _require_one_server(client, [notes.bookkeeping_table])
        return table
    written = find_written_tables(client, table.database, table.name)
    _require_one_server(client, [*written.places, notes.bookkeeping_table])
    for database, view in written.hidden:
        warn(
            f"view {database}.{view} reads {'.'.join(written.target)} or a table behind it, and this user cannot see "
            "it: whether a repeated batch doubles rows behind it is not known; grant SHOW TABLES on it and on its "
            "target"
        )
    keys = PartitionKeys(client, written, filled)
    faults = [str(fault) for fault in keys.faults()]
    if exactly_once and faults:
        raise TableProblem("\n".join(f"sink.table: {fault}" for fault in faults))
    problems = [*faults, *switch_on_windows(client, config, written, notes, warn)]
    if exactly_once and problems:
        raise TableProblem("\n".join(f"sink.table: {problem}" for problem in problems))
    for problem in problems:
        warn(f"{_AT_LEAST_ONCE} ({problem})")
    return replace(table, clock_columns=tuple(sorted(keys.clocks)))


def _require_one_server(client: Client, places: Iterable[Place]) -> None:
    """Raise `ClickHouseRefused` where the address leads to several servers, and one of the tables is not replicated."""
    for database, name in places:
        query = "SELECT engine FROM system.tables WHERE database = {database:String} AND name = {name:String}"
        found = fetch(client, query, {"database": database, "name": name})
        if found and not is_replicated(found[0][0]):
            asked(client, partial(require_one_server, client, f"{database}.{name}"))
            return


def create_target(client: Client, config: PipelineConfig) -> Table:
    """Make the target and its database where they are missing; gives the table as the server has it.

    Raises `TableProblem` with the statement where the server refuses it, and before that where a mapping leaves to an
    existing table what its column is.
    """
    database, name = config.sink.full_table
    incomplete = [
        f"sink.mapping[{index}].column_type: {reason}"
        for index, mapping in enumerate(config.sink.mapping)
        if (reason := incomplete_reason(mapping.parsed_type))
    ]
    if incomplete:
        raise TableProblem("\n".join(incomplete))
    ddl.ensure_database(client, database, config.sink.cluster)
    execute(client, ddl.create_target(config))
    table = find_table(client, database, name)
    if table is None:
        raise TableProblem(f"{database}.{name} was dropped while it was being prepared; start again")
    return table


def add_missing_columns(
    client: Client, config: PipelineConfig, table: Table, report: Callable[[str], None]
) -> list[Difference]:
    """Add the columns that the table lacks, saying each statement once it is done; gives what differs after that.

    Nothing is dropped and no type is changed. A table whose engine is refused is left as it is.
    """
    found = list(differences(config, table))
    if not table.family.endswith("MergeTree"):
        return found
    for difference in found:
        if difference.missing:
            statement = ddl.add_column(table.database, table.name, difference.missing)
            execute(client, statement)
            report(statement)
    altered = find_table(client, table.database, table.name)
    if altered is None:
        raise TableProblem(f"{table.database}.{table.name} was dropped while it was being altered; look who did")
    return list(differences(config, altered))
