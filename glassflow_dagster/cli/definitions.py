"""The commands that check and convert pipeline definitions; only `convert --effective` needs a server."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from glassflow_dagster.cli.options import exit_on_error, pipelines_option, report, show
from glassflow_dagster.definition.added_fields import written_with
from glassflow_dagster.definition.folder import writers_in
from glassflow_dagster.definition.load import (
    Conversion,
    all_warnings,
    convert_definition,
    load_pipeline,
    report_warnings,
)
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.definition.shared_tables import Writer, sharing_problems
from glassflow_dagster.errors import GlassflowError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@pipelines_option
def validate(files: tuple[Path, ...], pipelines: Path) -> None:
    """Check pipeline definitions without a server.

    Prints one line per problem: `file: field.path: what is wrong; what to do`. No two may write to one table unless all
    of them say so (sink.shared_table): of the given files, and if one of these is in the folder of the pipelines, of
    those in it.
    """
    errors: dict[Path, GlassflowError] = {}
    configs: dict[Path, PipelineConfig] = {}
    for file in files:
        try:
            configs[file] = load_pipeline(file)
        except GlassflowError as error:
            errors[file] = error
    writers = [Writer.of(config) for config in configs.values()]
    in_folder = [file for file in configs if file.resolve().parent == pipelines.resolve()]
    if in_folder:
        writers += writers_in(pipelines)
    for file, config in configs.items():
        if found := sharing_problems(Writer.of(config), writers):
            errors[file] = DefinitionError(file, found)
    for file in files:
        if file in errors:
            show(str(errors[file]))
        else:
            report_warnings(file, all_warnings(configs[file]), report)
    sys.exit(1 if errors else 0)


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
    # YAML has escapes of its own.
    click.echo(converted.yaml, nl=False)


def _with_added_fields(file: Path, converted: Conversion) -> Conversion:
    """Return the conversion with the fields that the pipeline took up."""
    from glassflow_dagster.stores.bookkeeping.schema_changes import added_fields, read_schema_changes
    from glassflow_dagster.stores.clickhouse.client import connect

    config = load_pipeline(file)
    client = connect(config.sink.connection_params)
    changes = read_schema_changes(client, config.sink.connection_params.database, config.pipeline_id)
    return replace(converted, definition=written_with(converted.definition, config, added_fields(changes)))
