"""Records whose timestamps no calendar has: producers send them in micro- or nanoseconds where Kafka takes any."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.cli import main
from tests.e2e.support import Pipeline
from tests.support.sending import Sender
from tests.support.variants import one_of

MILLIS = 1_700_000_000_000  # of a day in 2023
# The day in the units that producers confuse, and the greatest that Kafka has.
TIMES = [MILLIS, MILLIS * 1_000, MILLIS * 1_000_000, 2**63 - 1]


def create_topic_of_any_time(pipeline: Pipeline) -> None:
    """As brokers before 4.0 create topics."""
    settings = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})
    admin.create_topics([NewTopic(pipeline.name, 1, 1, config=settings)])[pipeline.name].result(30)


def send(pipeline: Pipeline, values: list[str]) -> None:
    sender = Sender(pipeline.brokers)
    for value, timestamp in zip(values, TIMES, strict=True):
        sender.send(pipeline.name, value, timestamp=timestamp)
    sender.flush()


def dead_letters(pipeline: Pipeline, name: str, *options: str) -> Any:
    done = CliRunner().invoke(
        main, ["dead-letters", name, pipeline.name, "--pipelines", str(pipeline.file.parent), *options]
    )
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("settings", one_of([{}, {"spark.glassflow.inlineRecords": "0"}]), ids=["inline", "jobs"])
def test_records_come_into_the_table_whatever_their_timestamps_are(
    pipeline: Pipeline, settings: dict[str, str]
) -> None:
    pipeline.columns = {"n": "Int32", "_timestamp": "Float64"}
    create_topic_of_any_time(pipeline.write())
    send(pipeline, [json.dumps({"id": f"k{number}", "n": number}) for number in range(len(TIMES))])
    assert pipeline.catch_up(create_table=True, spark=settings)["written"] == len(TIMES)
    found = pipeline.query("SELECT n, _timestamp FROM {db}.events ORDER BY n")
    assert found == [(number, time / 1000) for number, time in enumerate(TIMES)]


def test_a_timestamp_that_a_column_cannot_hold_is_a_dead_letter_with_that_timestamp(pipeline: Pipeline) -> None:
    """It can be listed and replayed, and is the same after that."""
    pipeline.columns = {"n": "Int32", "_timestamp": "DateTime64(3)"}
    create_topic_of_any_time(pipeline.write())
    send(pipeline, [json.dumps({"id": f"k{number}", "n": number}) for number in range(len(TIMES))])
    assert pipeline.catch_up(create_table=True)["dead_letters"] == len(TIMES) - 1
    stored = "SELECT toUnixTimestamp64Milli(timestamp) FROM {db}.glassflow_dead_letters WHERE attempt = %d ORDER BY 1"
    assert pipeline.query(stored % 0) == [(time,) for time in TIMES[1:]]
    found = json.loads(dead_letters(pipeline, "list", "--json"))
    assert sorted(letter["timestamp"] for letter in found) == sorted(f"{time} ms" for time in TIMES[1:])
    assert all("_timestamp" in letter["reason"] for letter in found)
    assert dead_letters(pipeline, "list").count(pipeline.name) == len(TIMES) - 1
    assert f"sent again: {len(TIMES) - 1}" in dead_letters(pipeline, "replay")
    assert pipeline.catch_up()["dead_letters"] == len(TIMES) - 1
    assert pipeline.query(stored % 1) == [(time,) for time in TIMES[1:]]
