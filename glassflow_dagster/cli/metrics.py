"""The command that shows Prometheus the metrics of many pipelines."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassflow_dagster.cli.options import exit_on_error, pipelines_option, report, state_option
from glassflow_dagster.definition.folder import definition_files
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.errors import GlassflowError

if TYPE_CHECKING:
    from glassflow_dagster.runtime.metrics.exposition import MetricsSource
    from glassflow_dagster.runtime.metrics.pipeline_metrics import PipelineMetrics

# The default of OpenTelemetry's exporter for Prometheus.
_PORT = 9464


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="Port; 0 for a free one.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on. There is no login and no encryption."
)
@click.option("--once", is_flag=True, help="Print the metrics and end.")
@click.option(
    "--ledger",
    is_flag=True,
    help="Read ClickHouse instead of the state folder, for pipelines of other hosts: outcomes, residual, dead letters "
    "and epoch of every definition.",
)
@state_option
@pipelines_option
@exit_on_error
def metrics(port: int, host: str, once: bool, ledger: bool, state: Path, pipelines: Path) -> None:
    """Serve the metrics of all pipelines at /metrics, in OpenMetrics' text format, until Ctrl-C."""
    # Imported here, so that other commands start quickly.
    from glassflow_dagster.runtime.metrics.exposition import openmetrics_text
    from glassflow_dagster.runtime.metrics.server import serve_metrics

    source = _ledger_source(pipelines) if ledger else _state_source(state)
    if once:
        click.echo(openmetrics_text(source), nl=False)
        return
    with serve_metrics(host, port, source) as listening:
        report(f"metrics: http://{host}:{listening}/metrics")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            report("metrics: ended")


def _state_source(state: Path) -> "MetricsSource":
    """Return a function that reads the metrics of the pipelines that have run on a state folder."""
    from glassflow_dagster.control.pipeline_metrics import read_state_folder

    return lambda: read_state_folder(state, report)


def _ledger_source(pipelines: Path) -> "MetricsSource":
    """Return a function that reads from ClickHouse the metrics of each pipeline that a folder defines.

    A pipeline that cannot be read is reported, and left out.
    """
    from glassflow_dagster.checks.ledger_metrics import read_from_ledger

    def read() -> "Iterator[PipelineMetrics]":
        for file in definition_files(pipelines):
            try:
                yield read_from_ledger(load_pipeline(file))
            except GlassflowError as error:
                report(f"{file}: {error}")

    return read
