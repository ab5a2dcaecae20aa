"""The command `run`, the only one that is a driver: it runs a pipeline in this process."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassflow_dagster.cli.options import (
    conf_option,
    create_table_option,
    exit_on_error,
    log_format_option,
    pool_option,
    report,
    settings_of,
    show,
    state_option,
    take_over_option,
    timeout_option,
)
from glassflow_dagster.control.log import DriverLog, LogFormat
from glassflow_dagster.control.stop import take_over
from glassflow_dagster.definition.load import load_pipeline, report_rewriting
from glassflow_dagster.driver.python_output import python_output

if TYPE_CHECKING:
    from glassflow_dagster.driver.options import AcceptLoss, Rebuild, RunOptions
    from glassflow_dagster.stores.bookkeeping.outcomes import Totals
    from glassflow_dagster.stores.clickhouse.inserts.interrupted import MutatedRows

# Fields of the JSON object in the last line of a run, for scripts.
RUN_TOTALS = {"read", "copies", "written", "duplicates", "filtered", "dead_letters", "unmatched", "late", "waiting"}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--until-caught-up", is_flag=True, help="Stop when all records that the topics hold now are read.")
@state_option
@create_table_option
@timeout_option
@take_over_option
@click.option(
    "--rebuild-state",
    is_flag=True,
    help="Rebuild a lost or damaged checkpoint from the ledger, the topic and the table, then continue.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Continue without unrecoverable records or checkpoint; skipped records are listed in glassflow_losses.",
)
@click.option(
    "--start-over",
    is_flag=True,
    help="Read the topics from the beginning with a new checkpoint. Needs an empty table and empty view targets.",
)
@click.option(
    "--accept-clock",
    is_flag=True,
    help="Accept this machine's clock although it contradicts the times of earlier batches.",
)
@click.option(
    "--mutated-rows",
    type=click.Choice(("written", "missing")),
    help="What rows of an interrupted insert are that an ALTER or DELETE of the table may have removed.",
)
@conf_option
@pool_option
@log_format_option
@exit_on_error
def run(
    file: Path,
    until_caught_up: bool,
    state: Path,
    create_table: bool,
    timeout: float,
    taking_over: bool,
    rebuild_state: bool,
    accept_loss: bool,
    start_over: bool,
    accept_clock: bool,
    mutated_rows: "MutatedRows | None",
    conf: tuple[str, ...],
    pool: str | None,
    log_format: LogFormat | None,
) -> None:
    """Run a pipeline in the foreground; Ctrl-C stops it after the current batch.

    The last line on stdout is a JSON object with the totals of the batches that this run committed.
    """
    from glassflow_dagster.driver.options import RunOptions

    if [rebuild_state, accept_loss, start_over].count(True) > 1:
        raise click.UsageError("give only one of --rebuild-state, --accept-loss and --start-over")
    options = RunOptions(
        state=state,
        until_caught_up=until_caught_up,
        create_table=create_table,
        timeout_seconds=timeout,
        spark=settings_of(conf),
        pool=pool,
        rebuild=_rebuild() if rebuild_state else None,
        accept=_import_accept_loss() if accept_loss else None,
        start_over=start_over,
        accept_clock=accept_clock,
        mutated_rows=mutated_rows,
    )
    log = DriverLog(report, log_format or LogFormat.TEXT, takes_jvm_output=log_format is LogFormat.JSON)
    with python_output(log):
        totals = _run(file, options, log, taking_over=taking_over)
    show(totals.model_dump_json(include=RUN_TOTALS))


def _run(file: Path, options: "RunOptions", log: DriverLog, *, taking_over: bool) -> "Totals":
    """Load a definition and run its pipeline; return the totals of the batches that this run committed."""
    from glassflow_dagster.driver.run import run_pipeline
    from glassflow_dagster.stream.spark.without_pandas import leave_out_testing

    leave_out_testing()
    config = load_pipeline(file)
    log.pipeline = config.pipeline_id
    report_rewriting(config, log.problem)
    if taking_over:
        take_over(options.state, config.pipeline_id, log)
    return run_pipeline(config, options, log)


def _rebuild() -> "Rebuild":
    """Import the function that rebuilds a checkpoint, which few runs need."""
    from glassflow_dagster.driver.recovery.rebuild import rebuild_checkpoint

    return rebuild_checkpoint


def _import_accept_loss() -> "AcceptLoss":
    """Return `accept_loss`, which gives lost records up and continues; imported here, since few runs need it."""
    from glassflow_dagster.driver.recovery.acceptance import accept_loss

    return accept_loss
