"""The commands that check and convert pipeline definitions; they need no server."""

import sys
from pathlib import Path

import click

from glassflow_dagster.cli.options import exit_on_error, report
from glassflow_dagster.config.load import all_warnings, convert_definition, load_pipeline, report_warnings
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
@exit_on_error
def convert(file: Path) -> None:
    """Convert a definition of any supported version to v3 YAML and print it; `${...}` is kept."""
    converted = convert_definition(file)
    report_warnings(file, converted.warnings, report)
    click.echo(converted.yaml, nl=False)
