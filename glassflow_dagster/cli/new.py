"""The command that makes a pipeline by questions in a terminal, with the steps of the page."""

import sys
from pathlib import Path

import click

from glassflow_dagster.cli.options import (
    create_table_option,
    exit_on_error,
    pipelines_option,
    report,
    runner_options,
    state_option,
)
from glassflow_dagster.cli.serving import needs_extra
from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.runners.settings import RunnerSettings
from glassflow_dagster.errors import GlassflowError


@click.command()
@state_option
@pipelines_option
@create_table_option
@runner_options
@exit_on_error
def new(state: Path, pipelines: Path, create_table: bool, runner: RunnerSettings) -> None:
    """Make a pipeline step by step, from a topic to a table, and start it; nothing is written before the last step."""
    if not sys.stdin.isatty():
        raise GlassflowError("new: asks in a terminal, and this is none; use the page (ui), or infer")

    def run() -> None:
        from glassflow_dagster.cli.asking import make_pipeline
        from glassflow_dagster.cli.prompts import Terminal
        from glassflow_dagster.control.runners.choose import build_runner
        from glassflow_dagster.server.api.services import Services

        how = DriverOptions(state, create_table=create_table)
        services = Services.of(pipelines, state, build_runner(runner, how), report)
        try:
            make_pipeline(services, Terminal())
        finally:
            services.session.close()

    needs_extra("ui", "new", run)
