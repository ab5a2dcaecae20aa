"""The command that evaluates an expression for a sample record."""

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from glassflow_dagster.cli.options import exit_on_error, given_schema_options, json_option, report, show
from glassflow_dagster.definition.expressions.check import Checked, check_filter, check_transform
from glassflow_dagster.definition.expressions.outputs import misspelt_output_type
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import KEY_PREFIX, METADATA_FIELDS, SchemaField, Source
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.given_schema import GivenSchema
from glassflow_dagster.inference.sample_fields import fields_of_sample
from glassflow_dagster.runtime.safe_text import json_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from glassflow_dagster.stream.evaluate import Evaluation, Sample


@click.command("eval")
@click.argument("expression")
@click.option(
    "--sample", required=True, help="Sample record, as JSON if nothing else is said; @FILE reads a file, - stdin."
)
@click.option("--key", help="The record's key, given as --sample is. Fields of a JSON object are _key.NAME.")
@click.option("--filter", "as_filter", is_flag=True, help="Evaluate EXPRESSION as a filter instead of a transform.")
@click.option("--type", "output_type", default="", help="output_type of the transform, such as string.")
@click.option("--fields", help="Declared fields: NAME:TYPE,...; NAME:TYPE? for a field that may be missing or null.")
@click.option("--from", "file", type=click.Path(path_type=Path), help="Use the fields that this definition declares.")
@click.option(
    "--encoded", is_flag=True,
    help="The sample is a record's value as Kafka has it, in the format of --from, with its schema or registry.",
)  # fmt: skip
@given_schema_options
@json_option
@exit_on_error
def evaluate(
    expression: str,
    sample: str,
    key: str | None,
    as_filter: bool,
    output_type: str,
    fields: str | None,
    file: Path | None,
    encoded: bool,
    schema: GivenSchema | None,
    as_json: bool,
) -> None:
    """Evaluate EXPRESSION for a sample record, as a pipeline does.

    Without --fields and --from, the fields are those of the schema, or else inferred from sample and key; none is
    required. now() is the current time; in a pipeline it is the time of the batch. Exit code 1: the expression is
    invalid, or the record would become a dead letter.
    """
    if as_filter and output_type:
        raise click.UsageError("--type is for transforms; a filter is true or false")
    _require_one_format(fields, file, schema, encoded=encoded)
    if sample == "-" and key == "-":
        raise click.UsageError("stdin is one of --sample and --key, not both")
    record, record_key = _read_sample(sample), None if key is None else _read_sample(key)
    config = load_pipeline(file) if file is not None else None
    source = _encoded_source(config) if config and encoded else None
    if schema is not None:
        source = _source_of_schema(schema, fields, record)
    described = source or config
    declared = described.fields if described else _declared_fields(fields, record, record_key)
    kinds: dict[str, FieldKind] = {**METADATA_FIELDS, **{field.name: field.kind for field in declared}}
    checked = check_filter(expression, kinds) if as_filter else check_transform(expression, kinds)
    if suggestion := misspelt_output_type(output_type):
        report(f"warning: --type {output_type} converts nothing; did you mean {suggestion}?")

    def make_sample(spark: "SparkSession") -> "Sample":
        from glassflow_dagster.stream.evaluate import encoded_sample, json_sample

        if source is not None:
            return encoded_sample(spark, record, record_key, source)
        of_otlp = config is not None and config.source.signal is not None
        return json_sample(record, declared, record_key, of_otlp=of_otlp)

    outcome = _evaluate(checked, make_sample, output_type, as_filter=as_filter)
    show(_json(outcome) if as_json else _text(outcome, as_filter=as_filter))
    sys.exit(0 if outcome.dead_letter is None else 1)


def _require_one_format(fields: str | None, file: Path | None, schema: GivenSchema | None, *, encoded: bool) -> None:
    """Raise UsageError where options contradict each other."""
    if file is not None and (fields is not None or schema is not None):
        other = "--fields" if fields is not None else "--schema"
        raise click.UsageError(f"give the fields with {other} or with --from, not with both")
    if encoded and file is None:
        raise click.UsageError("--encoded needs the format of a definition, --from; with a schema alone use --schema")


def _encoded_source(config: PipelineConfig) -> Source:
    """Return the source whose format the sample has; raises UsageError where a record has no one event."""
    if config.source.signal is not None:
        raise click.UsageError("a request of OpenTelemetry has many events; give one as JSON, without --encoded")
    return config.source


def _read_sample(sample: str) -> bytes:
    """Return the sample record: from stdin for "-", from a file for "@FILE", else the text itself."""
    if sample == "-":
        return sys.stdin.buffer.read()
    if not sample.startswith("@"):
        return sample.encode()
    file = sample[1:]
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise GlassflowError(f"{file}: {error.strerror}; name a file with one record as JSON") from None


def _source_of_schema(schema: GivenSchema, fields: str | None, record: bytes) -> Source:
    """Return a source whose records have a schema; its fields are those of the option --fields, else the schema's.

    Raises `GlassflowError` where the file cannot be read, or the fields are to be the schema's and it is none.
    """
    if fields is not None:
        return schema.source(_parse_fields(fields))
    return schema.source(_fields_of_schema(schema.source(), record))


def _fields_of_schema(source: Source, record: bytes) -> tuple[SchemaField, ...]:
    """Return the fields that a source's schema declares, none of them required; a record has one of its messages.

    Raises `GlassflowError` for a record that the schema does not fit.
    """
    from glassflow_dagster.inference.fields import declared_fields
    from glassflow_dagster.inference.formats import read_with_schema
    from glassflow_dagster.stores.kafka.records import Record
    from glassflow_dagster.stream.scala.reader_process import ReaderProcess

    with ReaderProcess(report) as process:
        events = read_with_schema([Record("", 0, 0, None, None, record, ())], source, process.ask)
    if events.declared is None or not events.objects:
        raise GlassflowError(
            f"the sample is no record of the schema ({events.skipped_text}); correct it, or declare the --fields"
        )
    return tuple(
        SchemaField(name=field.name, type=field.type, required=False)
        for field in declared_fields(events.objects, events.declared).declared
    )


def _declared_fields(fields: str | None, record: bytes, key: bytes | None) -> tuple[SchemaField, ...]:
    """Return the fields of the option --fields, else those of the record, and of its key if that is a JSON object."""
    if fields is not None:
        return _parse_fields(fields)
    try:
        of_value = fields_of_sample(record)
    except ValueError as error:
        raise GlassflowError(
            f'the sample is not a JSON object ({error}); write one, such as {{"n": 1}}, or declare the --fields'
        ) from None
    with suppress(ValueError):
        of_key = fields_of_sample(key or b"")
        return (*of_value, *(field.model_copy(update={"name": f"{KEY_PREFIX}{field.name}"}) for field in of_key))
    return of_value


def _parse_fields(fields: str) -> tuple[SchemaField, ...]:
    return tuple(_parse_field(text.strip()) for text in fields.split(","))


def _parse_field(text: str) -> SchemaField:
    """Parse NAME:TYPE, or NAME:TYPE? for a field that is not required; raises UsageError for any other text."""
    name, _, declared_type = text.strip().rpartition(":")
    try:
        return SchemaField(name=name.strip(), type=declared_type.strip(" ?"), required=not declared_type.endswith("?"))
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")  # pydantic's prefix
        raise click.UsageError(f"--fields {text}: {problem}; write NAME:TYPE") from None


def _evaluate(
    checked: Checked, make_sample: Callable[["SparkSession"], "Sample"], output_type: str, *, as_filter: bool
) -> "Evaluation":
    """Start a local Spark session and evaluate the expression in it: its value, or why it makes a dead letter."""
    from glassflow_dagster.stream.evaluate import evaluate_filter, evaluate_output
    from glassflow_dagster.stream.spark.session import start_session, stop_session

    report("starting Spark ...")
    with tempfile.TemporaryDirectory(prefix="glassflow-eval-") as folder:
        spark = start_session("eval", Path(folder), {"spark.master": "local[1]"}, report)
        try:
            sample = make_sample(spark)
            if as_filter:
                return evaluate_filter(spark, checked, sample)
            return evaluate_output(spark, checked, output_type, sample)
        finally:
            stop_session(spark)


def _json(outcome: "Evaluation") -> str:
    """Return the result as a JSON object: {"dead_letter"} with its reason, or {"value", "type"}."""
    if outcome.dead_letter is not None:
        return json_text({"dead_letter": outcome.dead_letter})
    return json_text({"value": outcome.value, "type": outcome.kind})


def _text(outcome: "Evaluation", *, as_filter: bool) -> str:
    """Return the line that shows the result to a user."""
    if outcome.dead_letter is not None:
        return f"dead letter: {outcome.dead_letter}"
    value = json_text(outcome.value)
    if as_filter:
        return f"{value}: the event {'is kept' if outcome.value else 'is filtered out'}"
    return f"{value} ({outcome.kind})"
