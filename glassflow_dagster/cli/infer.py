"""The command that proposes a definition for a topic."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from glassflow_dagster.cli.options import readable, report
from glassflow_dagster.config.load import convert_definition, load_pipeline
from glassflow_dagster.config.model.connections import KafkaConnection
from glassflow_dagster.config.plain_secrets import SECRETS
from glassflow_dagster.config.servers import clickhouse_address
from glassflow_dagster.config.variables import holds_variable
from glassflow_dagster.inference.definition import Connections, Origin, pipeline_name, propose
from glassflow_dagster.inference.formats import read_events

# The embedded stack's.
DEFAULT_BROKERS = "127.0.0.1:9092"
DEFAULT_CLICKHOUSE = "http://default:@127.0.0.1:8123"
DEFAULT_DATABASE = "default"
PIPELINE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{4,99}")


def _known_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not PIPELINE_ID.fullmatch(value):
        raise click.BadParameter("has 5 to 100 letters, digits, '-' and '_', and starts with a letter or digit")
    return value


@click.command()
@click.argument("topic")
@click.option("--brokers", metavar="HOST:PORT,...", help="Kafka's brokers, without encryption or credentials.")
@click.option(
    "--from", "source", metavar="FILE", type=click.Path(path_type=Path),
    help="A definition whose connection_params are used, for both servers.",
)  # fmt: skip
@click.option(
    "--clickhouse-url", metavar="URL", help="http://user@host:port/database, for the definition; it is not asked."
)
@click.option("--pipeline-id", callback=_known_id, help="The pipeline's name; else it is made of the topic's.")
@click.option(
    "--messages", type=click.IntRange(min=1), default=1000, show_default=True, help="How many messages to read."
)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
    help="Seconds that reading may take.",
)  # fmt: skip
@readable
def infer(
    topic: str,
    brokers: str | None,
    source: Path | None,
    clickhouse_url: str | None,
    pipeline_id: str | None,
    messages: int,
    timeout: float,
) -> None:
    """Read some messages of a topic and print a definition that fits them, with comments that say why.

    They are read from the beginning and the end of every partition; nothing is committed or created. Servers that no
    option names are those of GLASSFLOW_KAFKA_BROKERS and GLASSFLOW_CLICKHOUSE_URL, else the embedded stack's.
    """
    from glassflow_dagster.kafka.samples import sample_records

    reading = _reading(brokers, source)
    connections = _connections(reading, source, brokers, clickhouse_url)
    sample = sample_records(reading, topic, messages, timeout)
    events = read_events(record.value for record in sample.records)
    origin = Origin(topic, sample.about, sample.partitions)
    click.echo(propose(origin, events, connections, pipeline_id), nl=False)
    if not sample.complete:
        report(f"warning: stopped reading after {events.messages:,} messages; --timeout gives it more time")
    file = f"pipelines/{pipeline_id or pipeline_name(topic)}.yaml"
    report(
        f"read {events.messages:,} of about {sample.about:,} messages; next: save the definition as {file}, look it "
        f"over, then: glassflow-dagster run {file} --until-caught-up"
    )


def _reading(brokers: str | None, source: Path | None) -> KafkaConnection:
    """Give the connection that the messages are read by."""
    if source and not brokers:
        return load_pipeline(source).source.connection_params
    named = brokers or os.environ.get("GLASSFLOW_KAFKA_BROKERS") or DEFAULT_BROKERS
    addresses = tuple(part for name in named.split(",") if (part := name.strip()))
    if not addresses:
        raise click.UsageError("--brokers: write HOST:PORT, several with commas between them")
    return KafkaConnection(brokers=addresses)


def _connections(
    reading: KafkaConnection, source: Path | None, brokers: str | None, clickhouse_url: str | None
) -> Connections:
    """Give what the definition says of the servers: a file's own texts, or what the options and variables name."""
    known = convert_definition(source).definition if source else None
    kafka: dict[str, Any] = {"brokers": list(reading.brokers)}
    kafka_remark = clickhouse_remark = ""
    if known and not brokers:
        kafka, kafka_remark = _without_secrets(known["sources"][0]["connection_params"], "KAFKA", "")
    if known and not clickhouse_url:
        clickhouse, clickhouse_remark = _without_secrets(known["sink"]["connection_params"], "CLICKHOUSE", ":-")
    else:
        url = clickhouse_url or os.environ.get("GLASSFLOW_CLICKHOUSE_URL") or DEFAULT_CLICKHOUSE
        given_as = "--clickhouse-url" if clickhouse_url else "GLASSFLOW_CLICKHOUSE_URL"
        clickhouse, clickhouse_remark = _without_secrets(_address(url, given_as), "CLICKHOUSE", ":-")
    return Connections(kafka, clickhouse, kafka_remark, clickhouse_remark)


def _address(url: str, given_as: str) -> dict[str, Any]:
    address = clickhouse_address(url, given_as)
    password = address.pop("password")
    database = urlsplit(url).path.strip("/") or DEFAULT_DATABASE
    return {"database": database, **address, "password": password}


def _without_secrets(parameters: dict[str, Any], place: str, default: str) -> tuple[dict[str, Any], str]:
    """Put variables in place of the secrets; gives the rest as it is, and a remark where there were any.

    A variable with a default, for which ClickHouse takes no password, can be judged before it is set.
    """
    secrets = {
        key: f"{place}_{key.upper()}"
        for key in SECRETS
        if (value := parameters.get(key)) and not holds_variable(str(value))
    }
    masked = {key: f"${{{variable}{default}}}" for key, variable in secrets.items()}
    remark = f"set {', '.join(secrets.values())}: secrets are not written down here" if secrets else ""
    return {**parameters, **masked}, remark
