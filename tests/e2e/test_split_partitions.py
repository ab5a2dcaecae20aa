"""Several tasks read one of Kafka's partitions: the same events survive, and a repeated batch has the same blocks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from glassflow_dagster.stream.stages import source
from tests.e2e.support import Pipeline

EVENTS = 24_000
# A batch takes 5,000 blocks of this many rows. A task may read half of a batch, of two cores, and half of that more.
ROWS = 3
LARGEST_TASK = 11_250
LARGEST_BATCH = 15_000


def events() -> Iterator[dict[str, Any]]:
    """Yield events of which each comes again far behind, in the part of another task: the first one must survive."""
    return ({"id": f"k{number % (EVENTS // 2)}", "n": number} for number in range(EVENTS))


def records_of_tasks(folder: Path) -> list[int]:
    """Return how many records each task has read from Kafka, by Spark's event log."""
    found = []
    for file in folder.rglob("events_*"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                found.append(event["Task Metrics"]["Input Metrics"]["Records Read"])
    return [records for records in found if records]


@pytest.mark.long
def test_tasks_share_a_partition_and_the_first_event_survives(pipeline: Pipeline, tmp_path: Path) -> None:
    log = tmp_path / "event-log"
    log.mkdir()
    pipeline.sink = {"max_batch_size": ROWS}
    pipeline.more["spark"] = {
        INLINE_RECORDS_SETTING: "0",
        "spark.master": "local[2]",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    pipeline.write().create_topic(partitions=1)
    pipeline.send(events(), lambda _: 0)
    done = pipeline.run("--until-caught-up")
    assert done.code == 0, done.err
    totals = json.loads(done.out)
    assert (totals["written"], totals["duplicates"]) == (EVENTS // 2, EVENTS // 2)
    survivors = pipeline.query("SELECT count(), uniqExact(id), max(n) FROM {db}.events")
    assert survivors == [(EVENTS // 2, EVENTS // 2, EVENTS // 2 - 1)]
    read = records_of_tasks(log)
    assert sum(read) >= EVENTS
    assert max(read) <= LARGEST_TASK
    # The first batch's two tasks.
    assert read.count(LARGEST_BATCH // 2) == 2


@pytest.mark.long
@pytest.mark.parametrize("is_deduplicated", [True, False])
def test_a_repeated_batch_on_another_number_of_cores_cuts_the_same_blocks(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, is_deduplicated: bool
) -> None:
    """Without a state a partition is read by one task, whatever the number of cores."""
    jobs = {INLINE_RECORDS_SETTING: "0"}
    pipeline.sink = {"max_batch_size": 100}
    pipeline.write(dedup=is_deduplicated).create_topic(partitions=1)
    pipeline.send([{"id": f"k{number}", "n": number} for number in range(3000)], lambda _: 0)
    pipeline.die_at("write_ledger_row", spark=jobs)
    assert pipeline.query("SELECT count() FROM {db}.events") == [(3000,)]
    monkeypatch.setattr(source, "LEAST_TASK_RECORDS", 700)
    monkeypatch.setattr(source, "MAX_BATCH_RECORDS", 1400)
    assert pipeline.catch_up(spark=jobs)["written"] == 3000
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(3000, 3000)]
