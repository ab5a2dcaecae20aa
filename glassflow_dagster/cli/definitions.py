"""The commands that check and convert pipeline definitions; only `convert --effective` needs a server."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from glassflow_dagster.cli.options import exit_on_error, report
from glassflow_dagster.config.added_fields import written_with
from glassflow_dagster.config.load import (
    Conversion,
    all_warnings,
    convert_definition,
    load_pipeline,
    report_warnings,
)
from glassflow_dagster.errors import GlassflowError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> None:
    """Check pipeline definitions without a server.

    Prints one line per problem: `file: field.path: what is wrong; what to do`.
    """
    has_problems = False
    for file in files:
        try:
            config = load_pipeline(file)
        except GlassflowError as error:
            click.echo(str(error))
            has_problems = True
        else:
            report_warnings(file, all_warnings(config), report)
    sys.exit(1 if has_problems else 0)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--effective", is_flag=True, help="With the fields that the pipeline took up (schema_evolution); asks ClickHouse."
)
@exit_on_error
def convert(file: Path, effective: bool) -> None:
    """Convert a definition of any supported version to v3 YAML and print it; `${...}` is kept."""
    converted = convert_definition(file)
    if effective:
        converted = _with_added_fields(file, converted)
    report_warnings(file, converted.warnings, report)
    click.echo(converted.yaml, nl=False)


def _with_added_fields(file: Path, converted: Conversion) -> Conversion:
    """Return the conversion with the fields that the pipeline took up."""
    from glassflow_dagster.bookkeeping.schema_changes import added_fields, read_schema_changes
    from glassflow_dagster.clickhouse.client import connect

    config = load_pipeline(file)
    client = connect(config.sink.connection_params)
    changes = read_schema_changes(client, config.sink.connection_params.database, config.pipeline_id)
    return replace(converted, definition=written_with(converted.definition, config, added_fields(changes)))
