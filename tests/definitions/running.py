"""Run a definition on real servers: send its messages, process all of them, and return the results."""

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.cli.run import RUN_TOTALS
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.identifiers import full_name, quote_name
from tests.definitions.cases import Case, Message
from tests.support.sending import Sender

BATCH_TIME = "<batch time>"


@dataclass(frozen=True)
class Outcome:
    """The results of a run; rows are sorted by their JSON text.

    dead_letters: topic, partition, offset, stage, reason; sorted by position.
    """

    rows: list[dict[str, Any]]
    totals: dict[str, int]
    dead_letters: list[tuple[str, int, int, str, str]]


def prepare(case: Case, config: PipelineConfig) -> None:
    """Create the topics, and the table if the case defines one."""
    admin = AdminClient({"bootstrap.servers": config.connection.brokers[0]})
    topics = [NewTopic(topic, case.sidecar.get("partitions", 1), 1) for topic in config.source_topics]
    for created in admin.create_topics(topics).values():
        created.result(30)
    if "table" in case.sidecar:
        client = connect(config.sink.connection_params)
        client.command(f"CREATE DATABASE IF NOT EXISTS {quote_name(config.sink.full_table[0])}")
        client.command(case.sidecar["table"])


def commit(case: Case, config: PipelineConfig) -> None:
    """Commit the offsets of the case's consumer group."""
    committed = case.sidecar.get("committed")
    if committed is None:
        return
    brokers = config.connection.brokers[0]
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": committed["group"], "enable.auto.commit": False})
    places = [TopicPartition(topic_of(config, None), *place) for place in committed["offsets"].items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def send(config: PipelineConfig, messages: list[Message]) -> None:
    """Send messages in order, those marked `aborted` in a transaction that is aborted."""
    brokers = config.connection.brokers[0]
    for aborted, some in groupby(messages, key=lambda message: message.aborted):
        sender = Sender(brokers, {"transactional.id": config.pipeline_id} if aborted else {})
        if aborted:
            sender.producer.init_transactions(30)
            sender.producer.begin_transaction()
        for message in some:
            sender.send(
                topic_of(config, message.source), message.value, message.key, message.partition,
                timestamp=message.timestamp, headers=message.headers,
            )  # fmt: skip
        sender.flush()
        if aborted:
            sender.producer.abort_transaction(30)


def run(config: PipelineConfig, columns: list[str], state: Path) -> Outcome:
    """Run until all is read; return the named columns of all rows, the totals, and the dead letters.

    Not in a pool: all these tests share one JVM.
    """
    messages_of_run: list[str] = []
    begin = time.time()
    options = RunOptions(state, until_caught_up=True, create_table=True, timeout_seconds=60)
    totals = run_pipeline(config.model_copy(update={"pool": None}), options, messages_of_run.append)
    end = time.time()
    client = connect(config.sink.connection_params)
    rows = [_with_batch_time(row, config, begin, end) for row in _rows(client, config, columns)]
    return Outcome(
        rows=sorted(rows, key=as_text),
        totals={name: count for name, count in totals.model_dump(include=RUN_TOTALS).items() if count},
        dead_letters=_dead_letters(client, config),
    )


def topic_of(config: PipelineConfig, source_id: str | None) -> str:
    """Return the first topic of a source, by default of the definition's first source."""
    topics = {source.source_id: source.topic_names[0] for source in config.sources}
    return topics[source_id or config.sources[0].source_id]


def as_text(row: dict[str, Any]) -> str:
    """Return a row as JSON text, to sort by."""
    return json.dumps(row, sort_keys=True)


def _rows(client: Client, config: PipelineConfig, columns: list[str]) -> list[dict[str, Any]]:
    mapped = [mapping.column_name for mapping in config.sink.mapping]
    names = ", ".join(quote_name(column) for column in dict.fromkeys([*mapped, *columns]))
    answer = client.raw_query(
        f"SELECT {names} FROM {full_name(*config.sink.full_table)}",
        fmt="JSONEachRow",
        settings={"session_timezone": "UTC", "output_format_json_quote_64bit_integers": 0},
    )
    return [json.loads(line) for line in answer.decode().splitlines()]


def _with_batch_time(row: dict[str, Any], config: PipelineConfig, begin: float, end: float) -> dict[str, Any]:
    """Replace the batch time by a fixed text after checking that it lies within the run."""
    for mapping in config.sink.mapping:
        if mapping.name == "_batch_time":
            batch_time = datetime.fromisoformat(row[mapping.column_name]).replace(tzinfo=UTC).timestamp()
            # The column's type may cut off the fraction of a second.
            assert begin - 1 < batch_time < end, (begin, batch_time, end)
            row[mapping.column_name] = BATCH_TIME
    return row


def _dead_letters(client: Client, config: PipelineConfig) -> list[tuple[str, int, int, str, str]]:
    database = quote_name(config.sink.connection_params.database)
    found = client.query(
        f"SELECT topic, partition, offset, stage, reason FROM {database}.glassflow_dead_letters "
        "WHERE pipeline_id = {pipeline:String} ORDER BY topic, partition, offset",
        parameters={"pipeline": config.pipeline_id},
    )
    return [tuple(row) for row in found.result_rows]
