"""The commands; each one is a few lines over the room that does the work.

Exit codes are a contract: 0 done, 1 what you asked about is not right, 2 wrong usage. Results go to stdout,
progress and errors to stderr. What is heavy (Spark, the servers) is imported by the command that needs it, so that
`validate` answers at once.
"""

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from glassflow_dagster.config.load import (
    DefinitionError,
    convert_definition,
    definition_files,
    find_definition,
    load_pipeline,
    warnings,
)
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.streaming.process import LAUNCH_TIMEOUT, STOP_TIMEOUT, Deployment, StreamStatus, ensure_running
from glassflow_dagster.streaming.process import status as stream_status
from glassflow_dagster.streaming.process import stop as stop_stream

DEFAULT_DATA = Path(".glassflow")
DEFAULT_STATE = DEFAULT_DATA / "state"
PIPELINES = Path("pipelines")

_state = click.option(
    "--state", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_STATE, show_default=True,
    envvar="GLASSFLOW_STATE", help="Folder of checkpoints, heartbeats and logs.",
)  # fmt: skip
_data = click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_DATA, show_default=True,
    help="Folder of the servers' data and logs.",
)  # fmt: skip
_pipelines = click.option(
    "--pipelines", type=click.Path(path_type=Path, file_okay=False), default=PIPELINES, show_default=True,
    envvar="GLASSFLOW_PIPELINES", help="Folder of the definitions.",
)  # fmt: skip
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_timeout = click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=300.0, show_default=True,
    help="Seconds that a server may be out of reach.",
)  # fmt: skip
_create_table = click.option("--create-table", is_flag=True, help="Create the target table when it is missing.")


def _report(text: str) -> None:
    click.echo(text, err=True)


def _readable(command: Callable[..., Any]) -> Callable[..., Any]:
    """Print an error that is meant for people as it is, and exit with 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except GlassflowError as error:
            _report(f"error: {error}" if not isinstance(error, DefinitionError) else str(error))
            sys.exit(1)

    return run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="glassflow-dagster")
def main() -> None:
    """Kafka streams that arrive in ClickHouse clean: deduplicated, checked, exactly once."""


@main.group()
def stack() -> None:
    """The embedded Kafka and ClickHouse, for a laptop."""


@stack.command("up")
@_data
@click.option("--kafka-port", type=click.IntRange(1, 65535), default=9092, show_default=True)
@click.option("--clickhouse-port", type=click.IntRange(1, 65535), default=8123, show_default=True)
@_readable
def stack_up(data: Path, kafka_port: int, clickhouse_port: int) -> None:
    """Start both servers in the background; returns when both answer."""
    from glassflow_dagster.local.stack import up  # noqa: PLC0415

    for line in _stack_lines(up(data, kafka_port, clickhouse_port, _report)):
        click.echo(line)


@stack.command("down")
@_data
@_readable
def stack_down(data: Path) -> None:
    """Stop both servers; their data stays."""
    from glassflow_dagster.local.stack import down  # noqa: PLC0415

    down(data, _report)


@stack.command("status")
@_data
@_readable
def stack_status(data: Path) -> None:
    """Say which of the servers run; exit code 1 when one does not."""
    from glassflow_dagster.local.stack import status  # noqa: PLC0415

    found = status(data)
    for line in _stack_lines(found):
        click.echo(line)
    sys.exit(0 if found.running else 1)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--until-caught-up", is_flag=True, help="Stop when all that the topics hold now is read.")
@_state
@_create_table
@_timeout
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be given several times.")
@_readable
def run(  # noqa: PLR0913, PLR0917 - one parameter an option
    file: Path, until_caught_up: bool, state: Path, create_table: bool, timeout: float, conf: tuple[str, ...]
) -> None:
    """Run a pipeline in the foreground; Ctrl-C finishes the batch.

    The last line on stdout is a JSON object with the totals of the batches that this run committed.
    """
    from glassflow_dagster.streaming.driver import RunOptions, run_pipeline  # noqa: PLC0415

    options = RunOptions(
        state=state,
        until_caught_up=until_caught_up,
        create_table=create_table,
        timeout_seconds=timeout,
        spark=_settings(conf),
    )
    totals = run_pipeline(load_pipeline(file), options, _report)
    click.echo(totals.model_dump_json())


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> None:
    """Check definitions without a server; one line per problem: `file: field.path: what is wrong; what to do`."""
    wrong = False
    for file in files:
        try:
            config = load_pipeline(file)
        except GlassflowError as error:
            click.echo(str(error))
            wrong = True
        else:
            for warning in warnings(config):
                _report(f"{file}: warning: {warning}")
    sys.exit(1 if wrong else 0)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_readable
def convert(file: Path) -> None:
    """Print a definition of any accepted format as v3 YAML; `${VAR}` stays as it is."""
    converted = convert_definition(file)
    for warning in converted.warnings:
        _report(f"{file}: warning: {warning}")
    click.echo(converted.yaml, nl=False)


@main.command()
@click.argument("pipeline", required=False)
@_state
@_pipelines
@_as_json
@_readable
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


@main.command()
@click.argument("pipeline")
@_pipelines
@_as_json
@_readable
def verify(pipeline: str, pipelines: Path, as_json: bool) -> None:
    """Compare Kafka with ClickHouse; exit code 1 when something is missing or doubled."""
    from glassflow_dagster.verification.verify import verify_pipeline  # noqa: PLC0415

    _, config = find_definition(pipeline, pipelines)
    found = verify_pipeline(config, _report)
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        for line in found.lines():
            click.echo(line)
    sys.exit(0 if found.passed else 1)


@main.command()
@click.argument("pipeline")
@_state
@_pipelines
@_create_table
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=LAUNCH_TIMEOUT, show_default=True,
    help="Seconds that the start may take.",
)  # fmt: skip
@_readable
def start(pipeline: str, state: Path, pipelines: Path, create_table: bool, timeout: float) -> None:
    """Start a pipeline in the background, or find it running."""
    file, config = find_definition(pipeline, pipelines)
    deployment = Deployment(file, config, state, create_table=create_table, timeout=timeout)
    found, action = ensure_running(deployment, _report)
    click.echo(f"{config.pipeline_id}: {action.value.replace('_', ' ')}, {found.state.value.lower()}; log: {found.log}")


@main.command()
@click.argument("pipeline")
@_state
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=STOP_TIMEOUT, show_default=True,
    help="Seconds that the batch may take; past them the driver is killed, and the batch done again at the next start.",
)  # fmt: skip
@_readable
def stop(pipeline: str, state: Path, timeout: float) -> None:
    """Stop a pipeline after its batch."""
    if stream_status(state, pipeline).heartbeat is None:
        raise GlassflowError(
            f"{state}: no pipeline called {pipeline!r} ever ran here; name its folder with --state DIR"
        )
    ending = stop_stream(state, pipeline, timeout)
    click.echo(f"{pipeline}: {ending.value.replace('_', ' ')}")


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise click.UsageError(f"--conf {pair}: write KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _known_pipelines(state: Path, pipelines: Path) -> list[str]:
    ran = (
        {folder.name for folder in state.iterdir() if (folder / "heartbeat.json").exists()} if state.is_dir() else set()
    )
    return sorted(ran | {load_pipeline(file).pipeline_id for file in definition_files(pipelines)})


def _stack_lines(found: Any) -> list[str]:
    return [
        f"{server.name:<11} {f'running at {server.address} (pid {server.pid})' if server.running else 'not running'}; "
        f"data: {server.data}; log: {server.log}"
        for server in (found.kafka, found.clickhouse)
    ]


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
        rates = f"in {beat.input_rows_per_second:,.0f} rows/s, out {beat.processed_rows_per_second:,.0f} rows/s"
        lines += [
            f"  batch {batch}, lag {lag}, {rates}",
            f"  read {t.read:,}, written {t.written:,}, duplicates {t.duplicates:,}, dead letters {t.dead_letters:,}",
            f"  log: {found.log}",
        ]
    return lines
