"""The command that prints, creates, compares, alters or releases a pipeline's target tables."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassflow_dagster.cli.options import exit_on_error, report, show, state_option
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from glassflow_dagster.stores.clickhouse.tables.differences import Difference


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--print", "show", is_flag=True, help="Print the CREATE TABLE statement; needs no server.")
@click.option("--create", is_flag=True, help="Create the table and its database if they do not exist.")
@click.option("--diff", is_flag=True, help="Print the differences between definition and table.")
@click.option("--alter", is_flag=True, help="With --diff: add missing columns first and print the statements.")
@click.option(
    "--release", is_flag=True, help="Restore the deduplication window for insert tokens that the pipeline changed."
)
@state_option
@exit_on_error
def table(file: Path, show: bool, create: bool, diff: bool, alter: bool, release: bool, state: Path) -> None:
    """Print, create, compare or release a pipeline's target table, and those of its routes.

    Prints one line per difference: `file: field.path: what is different; what to do`. Differences that do not stop the
    pipeline are marked as notes. Exit code 1: the pipeline would not start with this table.
    """
    if [show, create, diff, release].count(True) != 1 or (alter and not diff):
        raise click.UsageError("give one of --print, --create, --diff, --diff --alter and --release")
    config = load_pipeline(file)
    if show:
        _print(file, config)
    elif create:
        _create(file, config)
    elif release:
        _release(config, state)
    else:
        _compare(file, config, alter=alter)


def _print(file: Path, config: PipelineConfig) -> None:
    """Print the CREATE TABLE statements to stdout and remarks on them to stderr."""
    from glassflow_dagster.stores.clickhouse.tables.ddl import create_target
    from glassflow_dagster.stores.clickhouse.tables.differences import notes_on_creation

    for of_table in config.by_table:
        show(f"{create_target(of_table)};")
    # Tables without a mapping of their own have the notes of the sink's, which are shown once.
    for note in dict.fromkeys(note for of_table in config.by_table for note in notes_on_creation(of_table)):
        report(_line(file, note))


def _create(file: Path, config: PipelineConfig) -> None:
    """Create the tables unless they exist, then print their differences from the definition."""
    from glassflow_dagster.stores.bookkeeping.schema_changes import effective_definition
    from glassflow_dagster.stores.clickhouse.client import connect
    from glassflow_dagster.stores.clickhouse.tables.differences import differences
    from glassflow_dagster.stores.clickhouse.tables.prepare import create_target, find_target

    client = connect(config.sink.connection_params)
    config = effective_definition(client, config)
    found: list[Difference] = []
    for of_table in config.by_table:
        # Looked up first: CREATE TABLE IF NOT EXISTS needs the right to create even when the table exists.
        existing = find_target(client, of_table)
        target = existing or create_target(client, of_table)
        show(f"{of_table.sink.table_name}: {'is there already' if existing else 'created'}")
        found += differences(of_table, target)
    _print_differences(file, config, found)


def _compare(file: Path, config: PipelineConfig, *, alter: bool) -> None:
    """Print the tables' differences from the definition; with `alter` after the missing columns are added."""
    from glassflow_dagster.stores.bookkeeping.schema_changes import effective_definition
    from glassflow_dagster.stores.clickhouse.client import connect
    from glassflow_dagster.stores.clickhouse.tables.differences import Difference, differences
    from glassflow_dagster.stores.clickhouse.tables.prepare import add_missing_columns, find_target, missing_target

    client = connect(config.sink.connection_params)
    found = list(_schema_changes(client, config))
    config = effective_definition(client, config)
    for of_table in config.by_table:
        target = find_target(client, of_table)
        if target is None:
            text = f"{missing_target(of_table)}; create it: glassflow-dagster table {file} --create"
            found.append(Difference(of_table.sink.paths.table, text))
        elif alter:
            found += add_missing_columns(client, of_table, target, lambda statement: show(f"{statement};"))
        else:
            found += differences(of_table, target)
    _print_differences(file, config, found)


def _schema_changes(client: "Client", config: PipelineConfig) -> "Iterator[Difference]":
    """Yield a note on each field that the pipeline took up, or could not, as far as the definition lets it."""
    from glassflow_dagster.stores.bookkeeping.schema_changes import Change, read_schema_changes
    from glassflow_dagster.stores.clickhouse.tables.differences import Difference

    if config.schema_evolution == "ignore":
        return
    for change in read_schema_changes(client, config.sink.connection_params.database, config.pipeline_id):
        if change.change is Change.ADDED:
            text = (
                f"{change.field} ({change.type}) was taken up and fills column {change.column} ({change.column_type})"
            )
            yield Difference("schema_evolution", text, stops=False)
        elif change.change is Change.REFUSED:
            yield Difference("schema_evolution", f"{change.field} was not taken up: {change.reason}", stops=False)


def _release(config: PipelineConfig, state: Path) -> None:
    """Restore the deduplication windows that the pipeline changed, of the table and its view targets.

    Raises `GlassflowError` while the pipeline needs them: when it is running or has an open batch to repeat.
    """
    from glassflow_dagster.control.heartbeat import pipeline_folder
    from glassflow_dagster.control.status import UP, stream_status
    from glassflow_dagster.stores.bookkeeping.windows import Windows
    from glassflow_dagster.stores.clickhouse.client import connect
    from glassflow_dagster.stores.clickhouse.tables.window_changes import release_windows
    from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
    from glassflow_dagster.stream.checkpoint.open_storage import open_storage

    name = config.pipeline_id
    if stream_status(state, name).state in UP:  # a driver is running
        raise GlassflowError(f"{name} is running and needs this setting; stop it first: glassflow-dagster stop {name}")
    open_batch = Checkpoint(open_storage(config.state, pipeline_folder(state, name), name)).pending_plan()
    if open_batch:
        raise GlassflowError(
            f"{name}: batch {open_batch.batch_id} is in flight, and repeating it needs this setting; finish it first: "
            f"glassflow-dagster run FILE --until-caught-up --state {state}"
        )
    client = connect(config.sink.connection_params)
    release_windows(client, config, Windows(client, config.sink.connection_params.database), show)


def _print_differences(file: Path, config: PipelineConfig, table_differences: "Iterable[Difference]") -> None:
    """Print the differences, those that stop the pipeline first; exit with 1 when there is one of those."""
    # Tables without a mapping of their own have the differences of the sink's, which are shown once.
    ordered = list(dict.fromkeys(sorted(table_differences, key=lambda difference: not difference.stops)))
    for difference in ordered:
        show(_line(file, difference))
    if any(difference.stops for difference in ordered):
        sys.exit(1)
    *names, last = (sink.table_name for sink in config.sink.by_table)
    accept = f"{', '.join(names)} and {last} accept" if names else f"{last} accepts"
    report(f"{accept} the rows of {file}")


def _line(file: Path, difference: "Difference") -> str:
    return f"{file}: {difference}" if difference.stops else f"{file}: note: {difference}"
