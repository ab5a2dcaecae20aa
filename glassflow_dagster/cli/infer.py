"""The command that proposes a pipeline definition from the messages of a topic."""

import re
from pathlib import Path

import click

from glassflow_dagster.cli.options import (
    brokers_option,
    exit_on_error,
    given_schema_options,
    report,
)
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
) -> None:
    """Read some messages of a topic and print a pipeline definition for them, with comments that give the reasons.

    The messages come from the beginning and the end of every partition; no offset is committed, nothing is created.
    Servers without an option are those of GLASSFLOW_KAFKA_BROKERS and GLASSFLOW_CLICKHOUSE_URL, or else those of the
    embedded stack.
    """
    if schema is not None and schema_registry is not None:
        raise click.UsageError("give the schema with --schema or by --schema-registry, not with both")
    from glassflow_dagster.inference.topic import propose_for_topic

    servers = Servers(brokers, source, clickhouse_url, schema_registry)
    proposal = propose_for_topic(topic, servers, pipeline_id, messages, timeout, report, schema)
    # YAML has escapes of its own.
    click.echo(proposal.text, nl=False)
    if not proposal.complete:
        report(f"warning: stopped reading after {proposal.messages:,} messages; --timeout gives it more time")
    file = f"pipelines/{proposal.pipeline_id}.yaml"
    report(
        f"read {proposal.messages:,} of about {proposal.estimated_messages:,} messages; next: save the definition as "
        f"{file}, review it, then: glassflow-dagster run {file} --until-caught-up"
    )
