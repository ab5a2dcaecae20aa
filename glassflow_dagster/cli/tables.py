"""The command that prints, creates, compares, alters or releases a pipeline's target table."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassflow_dagster.cli.options import exit_on_error, report, state_option
from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError

if TYPE_CHECKING:
    from glassflow_dagster.clickhouse.target.differences import Difference


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
    """Print, create, compare or release a pipeline's target table.

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
    """Print the CREATE TABLE statement to stdout and remarks on it to stderr."""
    from glassflow_dagster.clickhouse.target.ddl import create_target
    from glassflow_dagster.clickhouse.target.differences import notes_on_creation

    click.echo(f"{create_target(config)};")
    for note in notes_on_creation(config):
        report(_line(file, note))


def _create(file: Path, config: PipelineConfig) -> None:
    """Create the table unless it exists, then print its differences from the definition."""
    from glassflow_dagster.clickhouse.client import connect
    from glassflow_dagster.clickhouse.tables import find_table
    from glassflow_dagster.clickhouse.target.differences import differences
    from glassflow_dagster.clickhouse.target.prepare import create_target

    client, full_table = connect(config.sink.connection_params), config.sink.full_table
    # Looked up first: CREATE TABLE IF NOT EXISTS needs the right to create even when the table exists.
    existing = find_table(client, *full_table)
    target = existing or create_target(client, config)
    click.echo(f"{'.'.join(full_table)}: {'is there already' if existing else 'created'}")
    _print_differences(file, config, differences(config, target))


def _compare(file: Path, config: PipelineConfig, *, alter: bool) -> None:
    """Print the table's differences from the definition; with `alter` after the missing columns are added."""
    from glassflow_dagster.clickhouse.client import connect
    from glassflow_dagster.clickhouse.tables import find_table
    from glassflow_dagster.clickhouse.target.differences import differences
    from glassflow_dagster.clickhouse.target.prepare import add_missing_columns

    client, full_table = connect(config.sink.connection_params), config.sink.full_table
    target = find_table(client, *full_table)
    if target is None:
        remedy = f"create it: glassflow-dagster table {file} --create"
        click.echo(f"{file}: sink.table: {'.'.join(full_table)} does not exist; {remedy}")
        sys.exit(1)
    if alter:
        remaining = add_missing_columns(client, config, target, lambda statement: click.echo(f"{statement};"))
    else:
        remaining = list(differences(config, target))
    _print_differences(file, config, remaining)


def _release(config: PipelineConfig, state: Path) -> None:
    """Restore the token windows of the table and its view targets.

    Raises `GlassflowError` while the pipeline needs them: when it is running or has an open batch to repeat.
    """
    from glassflow_dagster.bookkeeping.windows import Windows
    from glassflow_dagster.clickhouse.client import connect
    from glassflow_dagster.clickhouse.target.window_changes import release_windows
    from glassflow_dagster.driver.heartbeat import pipeline_folder
    from glassflow_dagster.driver.process import UP, status
    from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint

    name = config.pipeline_id
    if status(state, name).state in UP:
        raise GlassflowError(f"{name} is running and needs this setting; stop it first: glassflow-dagster stop {name}")
    open_batch = Checkpoint(pipeline_folder(state, name) / "checkpoint").pending_plan()
    if open_batch:
        raise GlassflowError(
            f"{name}: batch {open_batch.batch_id} is in flight, and repeating it needs this setting; finish it first: "
            f"glassflow-dagster run FILE --until-caught-up --state {state}"
        )
    client = connect(config.sink.connection_params)
    release_windows(client, config, Windows(client, config.sink.connection_params.database), click.echo)


def _print_differences(file: Path, config: PipelineConfig, found: "Iterable[Difference]") -> None:
    """Print the differences, those that stop the pipeline first; exit with 1 when there is one of those."""
    ordered = sorted(found, key=lambda difference: not difference.stops)
    for difference in ordered:
        click.echo(_line(file, difference))
    if any(difference.stops for difference in ordered):
        sys.exit(1)
    report(f"{'.'.join(config.sink.full_table)} accepts the rows of {file}")


def _line(file: Path, difference: "Difference") -> str:
    return f"{file}: {difference}" if difference.stops else f"{file}: note: {difference}"
