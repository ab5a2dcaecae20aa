"""The command line. Each command parses its options and calls the package that does the work.

Exit codes are stable: 0 success, 1 the command failed or found a problem, 2 wrong usage. Results go to stdout,
progress and errors to stderr. Commands import slow modules (Spark, the clients) inside their functions, so that
`validate` starts quickly.
"""

import click

from glassflow_dagster.cli.api import api, ui
from glassflow_dagster.cli.dead_letters import dead_letters
from glassflow_dagster.cli.definitions import convert, validate
from glassflow_dagster.cli.expressions import evaluate
from glassflow_dagster.cli.infer import infer
from glassflow_dagster.cli.mcp import mcp
from glassflow_dagster.cli.metrics import metrics
from glassflow_dagster.cli.new import new
from glassflow_dagster.cli.otlp import otlp
from glassflow_dagster.cli.plan import plan
from glassflow_dagster.cli.pools import pool
from glassflow_dagster.cli.run import run
from glassflow_dagster.cli.stack import stack
from glassflow_dagster.cli.state import state
from glassflow_dagster.cli.streams import logs, start, status, stop
from glassflow_dagster.cli.tables import table
from glassflow_dagster.cli.verify import verify


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="glassflow-dagster")
def main() -> None:
    """Stream Kafka topics to ClickHouse exactly once, with filters, transforms, deduplication and joins."""


for _command in (
    stack, run, start, stop, status, logs, pool, metrics, verify, validate, convert, infer, table, evaluate,
    dead_letters, otlp, api, ui, mcp, new, state, plan,
):  # fmt: skip
    main.add_command(_command)
