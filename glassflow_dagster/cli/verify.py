"""The command that compares the records in Kafka with the rows in ClickHouse."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from glassflow_dagster.cli.options import exit_on_error, json_option, pipelines_option, report, show, show_json
from glassflow_dagster.definition.folder import find_definition


@click.command()
@click.argument("pipeline")
@pipelines_option
@json_option
@click.option("--exact", is_flag=True, help="Read all records and rows again and compare every key, with Spark.")
@exit_on_error
def verify(pipeline: str, pipelines: Path, as_json: bool, exact: bool) -> None:
    """Compare Kafka with ClickHouse; exit code 1 when rows are missing or duplicated."""
    from glassflow_dagster.checks.verify import verify_pipeline

    config = find_definition(pipeline, pipelines)
    verification = verify_pipeline(config, report)
    if exact:
        from glassflow_dagster.checks.exact.session import reconcile_in_own_session

        verification = replace(verification, keys=reconcile_in_own_session(config, report))
    if as_json:
        show_json(verification.as_dict())
    else:
        for line in verification.lines():
            show(line)
    sys.exit(0 if verification.passed else 1)
