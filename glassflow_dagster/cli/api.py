"""The commands that serve the HTTP API, alone or with the page."""

from typing import Any

import click

from glassflow_dagster.cli.options import exit_on_error, report
from glassflow_dagster.cli.serving import needs_extra, serving_options
from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.runners.settings import RunnerSettings

RunnerStart = tuple[RunnerSettings, DriverOptions]


@click.command()
@serving_options
@exit_on_error
def api(serving: dict[str, Any], runner: RunnerStart) -> None:
    """Serve GlassFlow's HTTP API for the definitions of a folder, until Ctrl-C; pipelines go on.

    The address ending in /api/v1/docs shows the requests.
    """

    def run() -> None:
        from glassflow_dagster.control.runners.choose import build_runner
        from glassflow_dagster.server.api.serve import Options, serve

        serve(Options(runner=build_runner(*runner), **serving), report)

    needs_extra("api", "api", run)


@click.command()
@click.option(
    "--dagster-url", metavar="URL", default="", envvar="GLASSFLOW_DAGSTER_URL",
    help="Address of Dagster's page, for links to a pipeline's assets.",
)  # fmt: skip
@serving_options
@exit_on_error
def ui(dagster_url: str, serving: dict[str, Any], runner: RunnerStart) -> None:
    """Serve the page, on which pipelines are made and watched in a browser, until Ctrl-C; pipelines go on.

    The process serves the HTTP API, too.
    """

    def run() -> None:
        from glassflow_dagster.control.runners.choose import build_runner
        from glassflow_dagster.server.api.guard import PAGES
        from glassflow_dagster.server.api.serve import Options, Pages, serve
        from glassflow_dagster.server.ui.application import pages

        serve(Options(runner=build_runner(*runner), **serving), report, Pages("ui", PAGES, pages(dagster_url)))

    needs_extra("ui", "ui", run)
