"""The command that proposes a pipeline definition from the messages of a topic."""

import re
from pathlib import Path

import click

from glassflow_dagster.cli.options import brokers_option, exit_on_error, given_schema_options, report
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.given_schema import GivenSchema
from glassflow_dagster.inference.servers import Servers

PIPELINE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{4,99}")


def _require_pipeline_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of --pipeline-id, None when it is not given; raises BadParameter when it is invalid."""
    if value is not None and not PIPELINE_ID.fullmatch(value):
        raise click.BadParameter("has 5 to 100 letters, digits, '-' and '_', and starts with a letter or digit")
    return value


def _require_registry_url(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of --schema-registry, None when it is not given; raises BadParameter when it is no address."""
    if value is not None and not re.match(r"https?://[^/@:]+(?::\d{1,5})?(?:/|$)", value):
        raise click.BadParameter("write http://HOST:PORT, without a user; for credentials use --from")
    return value


@click.command()
@click.argument("topic")
@brokers_option
@click.option(
    "--from", "source", metavar="FILE", type=click.Path(path_type=Path),
    help="Use the connection_params of this definition for Kafka and ClickHouse.",
)  # fmt: skip
@click.option(
    "--clickhouse-url", metavar="URL", help="http://user@host:port/database, for the definition; no connection is made."
)
@click.option(
    "--schema-registry", metavar="URL", callback=_require_registry_url,
    help="Schema registry of an Avro or Protobuf topic, reached without credentials; others are those of --from.",
)  # fmt: skip
@given_schema_options
@click.option("--pipeline-id", callback=_require_pipeline_id, help="pipeline_id; derived from the topic if not given.")
@click.option(
    "--messages", type=click.IntRange(min=1), default=1000, show_default=True, help="Number of messages to read."
)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
    help="Time limit for reading, in seconds.",
)  # fmt: skip
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Write the definition to this file, which must not exist, instead of printing it.",
)  # fmt: skip
@exit_on_error
def infer(
    topic: str,
    brokers: str | None,
    source: Path | None,
    clickhouse_url: str | None,
    schema_registry: str | None,
    schema: GivenSchema | None,
    pipeline_id: str | None,
    messages: int,
    timeout: float,
    output: Path | None,
) -> None:
    """Read some messages of a topic and print a pipeline definition for them, with comments that give the reasons.

    The messages come from the beginning and the end of every partition; no offset is committed, nothing is created.
    Servers without an option are those of GLASSFLOW_KAFKA_BROKERS and GLASSFLOW_CLICKHOUSE_URL, or else those of the
    embedded stack.
    """
    if schema is not None and schema_registry is not None:
        raise click.UsageError("give the schema with --schema or by --schema-registry, not with both")
    if output is not None and output.exists():
        raise GlassflowError(f"{output} exists; remove it, or write to another file")
    from glassflow_dagster.inference.topic import propose_for_topic

    servers = Servers(brokers, source, clickhouse_url, schema_registry)
    proposal = propose_for_topic(topic, servers, pipeline_id, messages, timeout, report, schema)
    if output is None:
        # YAML has escapes of its own.
        click.echo(proposal.text, nl=False)
    else:
        _write(output, proposal.text)
    if not proposal.complete:
        report(f"warning: stopped reading after {proposal.messages:,} messages; --timeout gives it more time")
    file = output or Path("pipelines") / f"{proposal.pipeline_id}.yaml"
    step = f"review {file}" if output else f"save the definition as {file}, review it"
    report(
        f"read {proposal.messages:,} of about {proposal.estimated_messages:,} messages; next: {step}, then: "
        f"glassflow-dagster run {file} --until-caught-up"
    )


def _write(file: Path, text: str) -> None:
    """Write a new file; raises GlassflowError where that is not possible."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise GlassflowError(f"{file} cannot be written ({error.strerror}); name another file") from error
