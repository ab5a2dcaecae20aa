"""The commands about definitions; none of them needs a server."""

import sys
from pathlib import Path

import click

from glassflow_dagster.cli.options import readable, report
from glassflow_dagster.config.load import convert_definition, load_definition
from glassflow_dagster.errors import GlassflowError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> None:
    """Check definitions without a server; one line per problem: `file: field.path: what is wrong; what to do`."""
    wrong = False
    for file in files:
        try:
            loaded = load_definition(file)
        except GlassflowError as error:
            click.echo(str(error))
            wrong = True
        else:
            for warning in loaded.warnings:
                report(f"{file}: warning: {warning}")
    sys.exit(1 if wrong else 0)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@readable
def convert(file: Path) -> None:
    """Print a definition of any accepted format as v3 YAML; `${...}` stays as it is."""
    converted = convert_definition(file)
    for warning in converted.warnings:
        report(f"{file}: warning: {warning}")
    click.echo(converted.yaml, nl=False)
