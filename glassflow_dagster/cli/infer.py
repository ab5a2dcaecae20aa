"""The command that proposes a pipeline definition from the messages of a topic."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from glassflow_dagster.cli.options import exit_on_error, report
from glassflow_dagster.config.load import convert_definition, load_pipeline
from glassflow_dagster.config.model.connections import KafkaConnection
from glassflow_dagster.config.plain_secrets import SECRETS
from glassflow_dagster.config.servers import clickhouse_address
from glassflow_dagster.config.variables import holds_variable
from glassflow_dagster.inference.definition import Connections, Origin, pipeline_name, propose
from glassflow_dagster.inference.formats import read_events

# The servers of the embedded stack.
DEFAULT_BROKERS = "127.0.0.1:9092"
DEFAULT_CLICKHOUSE = "http://default:@127.0.0.1:8123"
DEFAULT_DATABASE = "default"
# What follows a variable in a reference whose variable may be unset, so that `validate` accepts the definition at once:
# ClickHouse often has no password.
_EMPTY = ":-"
PIPELINE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{4,99}")


def _require_pipeline_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of --pipeline-id; raises BadParameter when it is no valid one (a callback of click)."""
    if value is not None and not PIPELINE_ID.fullmatch(value):
        raise click.BadParameter("has 5 to 100 letters, digits, '-' and '_', and starts with a letter or digit")
    return value


@click.command()
@click.argument("topic")
@click.option("--brokers", metavar="HOST:PORT,...", help="Kafka brokers, reached without encryption or credentials.")
@click.option(
    "--from", "source", metavar="FILE", type=click.Path(path_type=Path),
    help="Use the connection_params of this definition for Kafka and ClickHouse.",
)  # fmt: skip
@click.option(
    "--clickhouse-url", metavar="URL", help="http://user@host:port/database, for the definition; no connection is made."
)
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
    pipeline_id: str | None,
    messages: int,
    timeout: float,
) -> None:
    """Read some messages of a topic and print a pipeline definition for them, with comments that give the reasons.

    The messages come from the beginning and the end of every partition; no offset is committed, nothing is created.
    Servers without an option are those of GLASSFLOW_KAFKA_BROKERS and GLASSFLOW_CLICKHOUSE_URL, or else those of the
    embedded stack.
    """
    from glassflow_dagster.kafka.samples import sample_records

    connection = _kafka_connection(brokers, source)
    connections = _connections(connection, source, brokers, clickhouse_url)
    sample = sample_records(connection, topic, messages, timeout)
    events = read_events(record.value for record in sample.records)
    origin = Origin(topic, sample.about, sample.partitions)
    click.echo(propose(origin, events, connections, pipeline_id), nl=False)
    if not sample.complete:
        report(f"warning: stopped reading after {events.messages:,} messages; --timeout gives it more time")
    file = f"pipelines/{pipeline_id or pipeline_name(topic)}.yaml"
    report(
        f"read {events.messages:,} of about {sample.about:,} messages; next: save the definition as {file}, review "
        f"it, then: glassflow-dagster run {file} --until-caught-up"
    )


def _kafka_connection(brokers: str | None, source: Path | None) -> KafkaConnection:
    """Return the connection to read from: --brokers, the definition of --from, the environment, the embedded stack."""
    if source and not brokers:
        return load_pipeline(source).source.connection_params
    listed = brokers or os.environ.get("GLASSFLOW_KAFKA_BROKERS") or DEFAULT_BROKERS
    addresses = tuple(part for item in listed.split(",") if (part := item.strip()))
    if not addresses:
        raise click.UsageError("--brokers: write HOST:PORT, several with commas between them")
    return KafkaConnection(brokers=addresses)


def _connections(
    kafka_connection: KafkaConnection, source: Path | None, brokers: str | None, clickhouse_url: str | None
) -> Connections:
    """Return both `connection_params` of the proposed definition, their secrets replaced by variables.

    They are copied from the definition of --from (`source`), with its `${...}` references, unless an option names the
    server; without --from they come from the options, the environment or the defaults. A remark on a server becomes a
    comment of the definition, and names the variables to set.
    """
    template = convert_definition(source).definition if source else None
    kafka: dict[str, Any] = {"brokers": list(kafka_connection.brokers)}
    kafka_remark = clickhouse_remark = ""
    if template and not brokers:
        kafka, kafka_remark = _replace_secrets(template["sources"][0]["connection_params"], "KAFKA")
    if template and not clickhouse_url:
        clickhouse, clickhouse_remark = _replace_secrets(template["sink"]["connection_params"], "CLICKHOUSE", _EMPTY)
    else:
        url = clickhouse_url or os.environ.get("GLASSFLOW_CLICKHOUSE_URL") or DEFAULT_CLICKHOUSE
        setting = "--clickhouse-url" if clickhouse_url else "GLASSFLOW_CLICKHOUSE_URL"
        clickhouse, clickhouse_remark = _replace_secrets(_clickhouse_parameters(url, setting), "CLICKHOUSE", _EMPTY)
    return Connections(kafka, clickhouse, kafka_remark, clickhouse_remark)


def _clickhouse_parameters(url: str, setting: str) -> dict[str, Any]:
    """Convert http://user:password@host:port/database to the sink's `connection_params`.

    The keys are in the order in which the definition prints them: database first, password last. setting: the option
    or variable that holds the URL; the error for an invalid URL names it.
    """
    parameters = clickhouse_address(url, setting)
    password = parameters.pop("password")
    database = urlsplit(url).path.strip("/") or DEFAULT_DATABASE
    return {"database": database, **parameters, "password": password}


def _replace_secrets(parameters: dict[str, Any], prefix: str, default: str = "") -> tuple[dict[str, Any], str]:
    """Replace plain secrets in `connection_params` by variables such as `${KAFKA_PASSWORD}`.

    Returns the parameters and a remark that names the variables to set ('' without secrets). prefix: of the variables'
    names. default: what follows a variable's name in the reference.
    """
    secrets = {
        key: f"{prefix}_{key.upper()}"
        for key in SECRETS
        if (value := parameters.get(key)) and not holds_variable(str(value))
    }
    masked = {key: f"${{{variable}{default}}}" for key, variable in secrets.items()}
    remark = f"set {', '.join(secrets.values())}: the definition contains no secrets" if secrets else ""
    return {**parameters, **masked}, remark
