"""The command that compares Kafka with ClickHouse."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import click

from glassflow_dagster.cli.options import json_option, pipelines_option, readable, report
from glassflow_dagster.config.folder import find_definition


@click.command()
@click.argument("pipeline")
@pipelines_option
@json_option
@click.option("--exact", is_flag=True, help="Read all records and rows again and compare every key, by Spark.")
@readable
def verify(pipeline: str, pipelines: Path, as_json: bool, exact: bool) -> None:
    """Compare Kafka with ClickHouse; exit code 1 when something is missing or doubled."""
    from glassflow_dagster.verification.verify import verify_pipeline

    _, config = find_definition(pipeline, pipelines)
    found = verify_pipeline(config, report)
    if exact:
        from glassflow_dagster.verification.exact.session import reconcile_in_own_session

        found = replace(found, keys=reconcile_in_own_session(config, report))
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        for line in found.lines():
            click.echo(line)
    sys.exit(0 if found.passed else 1)
