"""The commands; each one is a few lines over the room that does the work.

Exit codes are a contract: 0 done, 1 what you asked about is not right, 2 wrong usage. Results go to stdout,
progress and errors to stderr. What is heavy (Spark, the servers) is imported by the command that needs it, so that
`validate` answers at once.
"""

import click

from glassflow_dagster.cli.dead_letters import dead_letters
from glassflow_dagster.cli.definitions import convert, validate
from glassflow_dagster.cli.expressions import evaluate
from glassflow_dagster.cli.infer import infer
from glassflow_dagster.cli.stack import stack
from glassflow_dagster.cli.streams import run, start, status, stop
from glassflow_dagster.cli.tables import table
from glassflow_dagster.cli.verify import verify


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="glassflow-dagster")
def main() -> None:
    """Kafka streams that arrive in ClickHouse clean: deduplicated, checked, exactly once."""


for _command in (stack, run, start, stop, status, verify, validate, convert, infer, table, evaluate, dead_letters):
    main.add_command(_command)
