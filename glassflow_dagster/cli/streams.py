"""The commands that start and stop drivers in the background, and show their status."""

import socket
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from glassflow_dagster.cli.options import (
    create_table_option,
    exit_on_error,
    json_option,
    log_format_option,
    pipelines_option,
    pool_option,
    report,
    runner_options,
    show,
    show_json,
    state_option,
    take_over_option,
)
from glassflow_dagster.control.deployment import LAUNCH_TIMEOUT, DriverOptions
from glassflow_dagster.control.heartbeat import is_alive, pipelines_in
from glassflow_dagster.control.launch import Action
from glassflow_dagster.control.log import LogFormat
from glassflow_dagster.control.runners.runner import LOG_LINES
from glassflow_dagster.control.runners.settings import RunnerSettings
from glassflow_dagster.control.status import StreamState, StreamStatus, read_log, stream_status
from glassflow_dagster.control.stop import STOP_TIMEOUT, Ending, stop_driver
from glassflow_dagster.definition.folder import definition_files, find_definition, pipeline_id
from glassflow_dagster.definition.load import report_rewriting
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError

if TYPE_CHECKING:
    from glassflow_dagster.control.runners.remote import RemoteRunner


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
@pool_option
@log_format_option
@runner_options
@exit_on_error
def start(
    pipeline: str,
    state: Path,
    pipelines: Path,
    create_table: bool,
    timeout: float,
    taking_over: bool,
    pool: str | None,
    log_format: LogFormat | None,
    runner: RunnerSettings,
) -> None:
    """Start a pipeline in the background unless it is running."""
    config = find_definition(pipeline, pipelines)
    report_rewriting(config, report)
    how = DriverOptions(state, create_table=create_table, timeout=timeout, log_format=log_format, pool=pool)
    chosen = _import_runners().build_runner(runner, how)
    if taking_over:
        # It ends the driver that runs here, if there is one, and fences off one that runs on another host, or seems to.
        stream, action = chosen.restart(config, report), Action.RESTARTED
    else:
        stream, action = chosen.ensure_running(config, report)
    show(
        f"{config.pipeline_id}: {action.value.replace('_', ' ')}, {stream.state.value.lower()}; log: {stream.log_shown}"
    )


@click.command()
@click.argument("pipeline")
@state_option
@pipelines_option
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=STOP_TIMEOUT, show_default=True,
    help="Seconds to wait for the batch; then a driver of this host is killed, and the next start repeats the batch.",
)  # fmt: skip
@exit_on_error
def stop(pipeline: str, state: Path, pipelines: Path, timeout: float) -> None:
    """Stop a pipeline after its current batch, on whatever host it runs."""
    if remote := _import_runners().remote_runner_of(state, pipeline):
        config = _definition_of(pipeline, pipelines)
        ending = remote.stop(config, timeout) if config else remote.stop_pipeline(pipeline, timeout)
        show(f"{pipeline}: {ending.value.replace('_', ' ')}")
        return
    ending = stop_driver(state, pipeline, timeout)
    if ending is Ending.NOT_RUNNING:
        config = _definition_of(pipeline, pipelines)
        if config is None and stream_status(state, pipeline).heartbeat is None:
            raise GlassflowError(
                f"{state}: pipeline {pipeline!r} has never run with this state folder, and {pipelines}/ has no valid "
                "definition of it by which it could be found on another host; name its folder with --state DIR, or "
                "that of the definition with --pipelines DIR"
            )
        if config:
            ending = _import_hosts().stop(state, config, timeout, report)
    show(f"{pipeline}: {ending.value.replace('_', ' ')}")


@click.command()
@click.argument("pipeline")
@state_option
@click.option(
    "--lines", type=click.IntRange(min=1), default=LOG_LINES, show_default=True, help="How many, from the end."
)
@exit_on_error
def logs(pipeline: str, state: Path, lines: int) -> None:
    """Print the last lines of the driver that was started from here, on whatever host it runs."""
    remote = _import_runners().remote_runner_of(state, pipeline)
    if remote is None and stream_status(state, pipeline).heartbeat is None:
        raise GlassflowError(
            f"{state}: pipeline {pipeline!r} has never run with this state folder; name its folder with --state DIR"
        )
    text = remote.log_of(pipeline, lines) if remote else read_log(state, pipeline, lines)
    if text:
        show(text)


@click.command()
@click.argument("pipeline", required=False)
@state_option
@pipelines_option
@json_option
@click.option("--watch", "watching", is_flag=True, help="Show rates, lag and latency live, until Ctrl-C.")
@exit_on_error
def status(pipeline: str | None, state: Path, pipelines: Path, as_json: bool, watching: bool) -> None:
    """Show the pipelines' state, lag, rates, last batch, and totals since the driver started."""
    names = [pipeline] if pipeline else _known_pipelines(state, pipelines)
    streams = {name: _status_of(name, state, pipelines) for name in names}
    if pipeline and streams[pipeline].heartbeat is None and not streams[pipeline].log_place:
        find_definition(pipeline, pipelines)  # raises for an unknown name
    if watching:
        if as_json:
            raise click.UsageError("give only one of --json and --watch")
        _watch(state, pipelines, names)
        return
    if as_json:
        content = {name: _status_json(entry) for name, entry in streams.items()}
        show_json(content[pipeline] if pipeline else content)
        return
    for name, entry in streams.items():
        for line in _status_lines(name, entry):
            show(line)


def _status_of(pipeline: str, state: Path, pipelines: Path) -> StreamStatus:
    """Return a pipeline's status, of whatever host where it has a valid definition, else of this host."""
    here = stream_status(state, pipeline)
    if here.heartbeat and is_alive(here.heartbeat):
        return here
    config = _definition_of(pipeline, pipelines)
    if remote := _import_runners().remote_runner_of(state, pipeline):
        return _status_elsewhere(remote, pipeline, config, here)
    return _import_hosts().status(state, config) if config else here


def _status_elsewhere(
    remote: "RemoteRunner", pipeline: str, config: PipelineConfig | None, here: StreamStatus
) -> StreamStatus:
    """Return the status of a driver that another system runs; STALE where that does not answer."""
    try:
        return remote.status(config) if config else remote.status_of(pipeline)
    except GlassflowError as error:
        return replace(here, state=StreamState.STALE, message=str(error), log_place="not known")


def _definition_of(pipeline: str, pipelines: Path) -> PipelineConfig | None:
    """Return a pipeline's definition; None without a valid one."""
    try:
        return find_definition(pipeline, pipelines)
    except GlassflowError:
        return None


def _watch(state: Path, pipelines: Path, names: list[str]) -> None:
    """Show the pipelines live until Ctrl-C; raises UsageError without a terminal."""
    from rich.console import Console

    from glassflow_dagster.cli.watch import watch

    console = Console()
    if not console.is_terminal:
        raise click.UsageError("--watch needs a terminal; use --json in a script")
    watch(lambda: {name: _status_of(name, state, pipelines) for name in names}, console)


def _import_runners() -> ModuleType:
    """Return the module that chooses the runner; it needs ClickHouse's client, too."""
    from glassflow_dagster.control.runners import choose

    return choose


def _import_hosts() -> ModuleType:
    """Return the module that asks ClickHouse, whose client is slow to import, and which `run` needs only later."""
    from glassflow_dagster.control import hosts

    return hosts


def _known_pipelines(state: Path, pipelines: Path) -> list[str]:
    """Return the ids of the pipelines that have run on this state folder, and of those that have a definition."""
    have_run = set(pipelines_in(state))
    # An invalid definition must not hide a running pipeline, so only its id is read.
    return sorted(have_run | {name for file in definition_files(pipelines) if (name := pipeline_id(file))})


def _status_json(stream: StreamStatus) -> dict[str, Any]:
    """Return the heartbeat's fields, if there is one, with the state, its message and the log file."""
    heartbeat = (
        stream.heartbeat.model_dump(
            mode="json", exclude={"fingerprint", "process_started", "joins", "measures", "batch_phases"}
        )
        if stream.heartbeat
        else {}
    )
    return {
        **heartbeat,
        "state": stream.state.value,
        "message": stream.message,
        "host": stream.host or ("" if stream.log_place else socket.gethostname()),
        "log": stream.log_shown,
    }


def _status_lines(name: str, stream: StreamStatus) -> list[str]:
    """Return the lines that show a pipeline's status; only the state before the driver's first heartbeat."""
    lines = [f"{name}: {stream.state.value}{' - ' + stream.message if stream.message else ''}"]
    if heartbeat := stream.heartbeat:
        totals = heartbeat.totals
        # Missing before the first batch.
        batch, lag = (number if number is not None else "-" for number in (heartbeat.batch_id, heartbeat.lag))
        if len(heartbeat.lags) > 1:
            lag = f"{lag} ({', '.join(f'{topic} {records}' for topic, records in heartbeat.lags.items())})"
        if behind := sum(heartbeat.behind_transactions.values()):
            lag = f"{lag} and {behind:,} behind open transactions"
        rates = (
            f"in {heartbeat.input_rows_per_second:,.0f} rows/s, out {heartbeat.processed_rows_per_second:,.0f} rows/s"
        )
        # Where events go to several tables.
        copies = f"copies {totals.copies:,}, " if totals.copies else ""
        lines += [
            f"  batch {batch}, lag {lag}, {rates}",
            f"  read {totals.read:,}, {copies}written {totals.written:,}, duplicates {totals.duplicates:,}",
            f"  filtered {totals.filtered:,}, late {totals.late:,}, dead letters {totals.dead_letters:,}",
        ]
        if heartbeat.joins:
            size = f", state {heartbeat.state_bytes / 1e6:,.1f} MB" if heartbeat.state_bytes is not None else ""
            lines.append(
                f"  matched {totals.matched:,}, unmatched {totals.unmatched:,}, waiting {totals.waiting:,}{size}"
            )
    if stream.heartbeat or stream.log_place:
        lines.append(f"  log: {stream.log_shown}" + (f" on host {stream.host}" if stream.host else ""))
    return lines
