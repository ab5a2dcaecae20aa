"""The commands that run pipelines, stop them and say how they are."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassflow_dagster.cli.options import (
    create_table_option,
    json_option,
    pipelines_option,
    readable,
    report,
    state_option,
    timeout_option,
)
from glassflow_dagster.config.folder import definition_files, find_definition, pipeline_id
from glassflow_dagster.config.load import load_pipeline, report_rewriting
from glassflow_dagster.driver.process import (
    LAUNCH_TIMEOUT,
    STOP_TIMEOUT,
    Deployment,
    StreamStatus,
    ensure_running,
    take_over,
)
from glassflow_dagster.driver.process import status as stream_status
from glassflow_dagster.driver.process import stop as stop_stream
from glassflow_dagster.errors import GlassflowError

if TYPE_CHECKING:
    from glassflow_dagster.driver.options import AcceptLoss, Rebuild

# What scripts read from the last line of a run.
RUN_TOTALS = {"read", "written", "duplicates", "filtered", "dead_letters", "unmatched", "late", "waiting"}

take_over_option = click.option(
    "--take-over", "taking_over", is_flag=True,
    help="End the driver that runs this pipeline on this host, wait for its death, and go on from its checkpoint.",
)  # fmt: skip


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--until-caught-up", is_flag=True, help="Stop when all that the topics hold now is read.")
@state_option
@create_table_option
@timeout_option
@take_over_option
@click.option(
    "--rebuild-state",
    is_flag=True,
    help="Make a checkpoint that is lost or damaged anew from the ledger, the topic and the table, and go on.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Go on without records, or a checkpoint, that are lost for good; what is skipped is written down.",
)
@click.option(
    "--start-over",
    is_flag=True,
    help="Read the topics from their beginning with a new checkpoint; the table, and those behind its views, empty.",
)
@click.option(
    "--accept-clock",
    is_flag=True,
    help="Believe this machine's clock, though it does not fit the times of earlier batches.",
)
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be given several times.")
@readable
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
    conf: tuple[str, ...],
) -> None:
    """Run a pipeline in the foreground; Ctrl-C finishes the batch.

    The last line on stdout is a JSON object with the totals of the batches that this run committed.
    """
    from glassflow_dagster.driver.options import RunOptions
    from glassflow_dagster.driver.run import run_pipeline

    if [rebuild_state, accept_loss, start_over].count(True) > 1:
        raise click.UsageError(
            "give one of --rebuild-state, --accept-loss, which go on, and --start-over, which does not"
        )
    options = RunOptions(
        state=state,
        until_caught_up=until_caught_up,
        create_table=create_table,
        timeout_seconds=timeout,
        spark=_settings(conf),
        rebuild=_rebuild() if rebuild_state else None,
        accept=_acceptance() if accept_loss else None,
        start_over=start_over,
        accept_clock=accept_clock,
    )
    config = load_pipeline(file)
    report_rewriting(file, report)
    if taking_over:
        take_over(state, config.pipeline_id, report)
    totals = run_pipeline(config, options, report)
    click.echo(totals.model_dump_json(include=RUN_TOTALS))


@click.command()
@click.argument("pipeline")
@state_option
@pipelines_option
@create_table_option
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=LAUNCH_TIMEOUT, show_default=True,
    help="Seconds that the start may take.",
)  # fmt: skip
@take_over_option
@readable
def start(pipeline: str, state: Path, pipelines: Path, create_table: bool, timeout: float, taking_over: bool) -> None:
    """Start a pipeline in the background, or find it running."""
    file, config = find_definition(pipeline, pipelines)
    report_rewriting(file, report)
    deployment = Deployment(file, config, state, create_table=create_table, timeout=timeout)
    if taking_over:
        take_over(state, config.pipeline_id, report)
    found, action = ensure_running(deployment, report)
    click.echo(f"{config.pipeline_id}: {action.value.replace('_', ' ')}, {found.state.value.lower()}; log: {found.log}")


@click.command()
@click.argument("pipeline")
@state_option
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=STOP_TIMEOUT, show_default=True,
    help="Seconds that the batch may take; past them the driver is killed, and the batch done again at the next start.",
)  # fmt: skip
@readable
def stop(pipeline: str, state: Path, timeout: float) -> None:
    """Stop a pipeline after its batch."""
    if stream_status(state, pipeline).heartbeat is None:
        raise GlassflowError(
            f"{state}: no pipeline called {pipeline!r} ever ran here; name its folder with --state DIR"
        )
    ending = stop_stream(state, pipeline, timeout)
    click.echo(f"{pipeline}: {ending.value.replace('_', ' ')}")


@click.command()
@click.argument("pipeline", required=False)
@state_option
@pipelines_option
@json_option
@readable
def status(pipeline: str | None, state: Path, pipelines: Path, as_json: bool) -> None:
    """Show how pipelines are: state, lag, rates, last batch, totals since the driver started."""
    names = [pipeline] if pipeline else _known_pipelines(state, pipelines)
    found = {name: stream_status(state, name) for name in names}
    if pipeline and found[pipeline].heartbeat is None:
        find_definition(pipeline, pipelines)  # a name that nobody knows is an error
    if as_json:
        content = {name: _status_json(entry) for name, entry in found.items()}
        click.echo(json.dumps(content[pipeline] if pipeline else content, indent=2))
        return
    for name, entry in found.items():
        for line in _status_lines(name, entry):
            click.echo(line)


def _rebuild() -> "Rebuild":
    """Load what makes a state anew, which hardly any run needs."""
    from glassflow_dagster.recovery.rebuild import rebuild_checkpoint

    return rebuild_checkpoint


def _acceptance() -> "AcceptLoss":
    from glassflow_dagster.recovery.acceptance import accept_loss

    return accept_loss


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise click.UsageError(f"--conf {pair}: write KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _known_pipelines(state: Path, pipelines: Path) -> list[str]:
    ran = (
        {folder.name for folder in state.iterdir() if (folder / "heartbeat.json").exists()} if state.is_dir() else set()
    )
    # A definition with mistakes hides no pipeline that runs.
    return sorted(ran | {found for file in definition_files(pipelines) if (found := pipeline_id(file))})


def _status_json(found: StreamStatus) -> dict[str, Any]:
    beat = (
        found.heartbeat.model_dump(mode="json", exclude={"fingerprint", "process_started"}) if found.heartbeat else {}
    )
    return {**beat, "state": found.state.value, "message": found.message, "log": str(found.log)}


def _status_lines(name: str, found: StreamStatus) -> list[str]:
    lines = [f"{name}: {found.state.value}{' - ' + found.message if found.message else ''}"]
    if beat := found.heartbeat:
        t = beat.totals
        batch, lag = (number if number is not None else "-" for number in (beat.batch_id, beat.lag))
        joins = len(beat.lags) > 1
        if joins:
            lag = f"{lag} ({', '.join(f'{topic} {behind}' for topic, behind in beat.lags.items())})"
        rates = f"in {beat.input_rows_per_second:,.0f} rows/s, out {beat.processed_rows_per_second:,.0f} rows/s"
        lines += [
            f"  batch {batch}, lag {lag}, {rates}",
            f"  read {t.read:,}, written {t.written:,}, duplicates {t.duplicates:,}",
            f"  filtered {t.filtered:,}, late {t.late:,}, dead letters {t.dead_letters:,}",
        ]
        if joins:
            size = f", state {beat.state_bytes / 1e6:,.1f} MB" if beat.state_bytes is not None else ""
            lines.append(f"  matched {t.matched:,}, unmatched {t.unmatched:,}, waiting {t.waiting:,}{size}")
        lines.append(f"  log: {found.log}")
    return lines
