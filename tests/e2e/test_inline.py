"""Batches of few records run inline, others as Spark jobs: both on one state, and with the same blocks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from glassflow_dagster.stream.batch_query import BatchQuery
from glassflow_dagster.stream.checkpoint.checkpoint import BatchPlan, Checkpoint
from glassflow_dagster.stream.inline_or_job import FIRST_RECORDS, INLINE_RECORDS, INLINE_RECORDS_SETTING
from tests.e2e.support import Pipeline, rows, start, stop
from tests.support.waiting import wait_until

FEW = 200
# A first batch, which is inline whatever there is, and a job.
MANY = FIRST_RECORDS + INLINE_RECORDS + 1


def events(numbers: range) -> Iterator[dict[str, Any]]:
    return ({"id": f"k{number}", "n": number} for number in numbers)


def plan(pipeline: Pipeline, batch_id: int) -> BatchPlan:
    found = Checkpoint(pipeline.state / pipeline.name / "checkpoint").plan(batch_id)
    assert found is not None
    return found


def has_one_row_each(pipeline: Pipeline, keys: int) -> bool:
    """Return whether the table has each of the first `keys` events once."""
    return pipeline.query("SELECT count(), uniqExact(id), sum(n) FROM {db}.events") == [(keys, keys, sum(range(keys)))]


def test_inline_batches_and_jobs_take_turns_on_one_state(pipeline: Pipeline, jobs: list[int]) -> None:
    pipeline.write().create_topic()
    pipeline.send(events(range(FEW)))
    assert pipeline.catch_up(create_table=True)["written"] == FEW
    # All keys so far, and new ones.
    pipeline.send(events(range(MANY)))
    assert pipeline.catch_up()["duplicates"] == FEW
    pipeline.send(events(range(MANY - FEW, MANY + FEW)))
    assert pipeline.catch_up()["duplicates"] == FEW

    assert has_one_row_each(pipeline, MANY + FEW)
    assert [plan(pipeline, batch).inline for batch in range(4)] == [True, True, False, True]
    read = [row[0] for row in pipeline.query("SELECT read FROM {db}.glassflow_ledger ORDER BY batch_id")]
    # Spark divides the limit between two partitions, rounded down.
    assert read == [FEW, FIRST_RECORDS - 1, INLINE_RECORDS + 2, 2 * FEW]
    assert jobs == [2]


@pytest.mark.long
def test_the_rest_of_a_backlog_follows_its_small_first_batch_without_a_delay(pipeline: Pipeline) -> None:
    pipeline.sink = {"max_delay_time": "10m"}
    pipeline.write().create_topic()
    pipeline.send(events(range(FIRST_RECORDS + FEW)))
    start(pipeline)
    wait_until(lambda: rows(pipeline) == FIRST_RECORDS + FEW, "all rows are there")
    stop(pipeline)
    assert has_one_row_each(pipeline, FIRST_RECORDS + FEW)


@pytest.mark.long
def test_a_setting_has_every_batch_run_as_a_job(pipeline: Pipeline, jobs: list[int]) -> None:
    pipeline.write().create_topic()
    pipeline.send(events(range(FEW)))
    assert pipeline.catch_up(create_table=True, spark={INLINE_RECORDS_SETTING: "0"})["written"] == FEW
    assert jobs == [0]


def test_a_batch_whose_plan_says_inline_is_repeated_as_a_job_with_the_same_blocks(
    pipeline: Pipeline, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is on a cluster, where the state is not in the driver. The table drops the blocks, as it knows them."""

    # Several blocks, and a state of several partitions.
    pipeline.sink = {"max_batch_size": 50}
    pipeline.write().create_topic()
    pipeline.send([*events(range(FEW)), *events(range(FEW))])
    pipeline.die_at("write_ledger_row", create_table=True)
    assert plan(pipeline, 0).inline
    assert has_one_row_each(pipeline, FEW)
    monkeypatch.setattr(BatchQuery, "inline", lambda *_: None)
    totals = pipeline.catch_up()

    assert jobs == [0]
    assert (totals["written"], totals["duplicates"]) == (FEW, FEW)
    assert has_one_row_each(pipeline, FEW)


@pytest.mark.long
def test_without_deduplication_every_copy_comes_in_its_own_row(pipeline: Pipeline, jobs: list[int]) -> None:
    pipeline.write(dedup=False).create_topic()
    pipeline.send([*events(range(FEW)), *events(range(FEW))])
    assert pipeline.catch_up(create_table=True)["written"] == 2 * FEW
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(2 * FEW, FEW)]
    assert jobs == []


@pytest.mark.long
def test_a_running_driver_reads_what_arrives_also_in_new_partitions_and_not_what_was_aborted(
    pipeline: Pipeline,
) -> None:
    pipeline.write().create_topic()
    pipeline.send(events(range(FEW)))
    start(pipeline)
    wait_until(lambda: pipeline.query("EXISTS {db}.events") == [(1,)] and rows(pipeline) == FEW, "it has begun")
    # One after the other: each is a batch from the consumer that waits for records.
    for number in range(FEW, FEW + 5):
        pipeline.send(events(range(number, number + 1)))
        wait_until(lambda number=number: rows(pipeline) == number + 1, f"event {number} has arrived")
    producer = Producer({"bootstrap.servers": pipeline.brokers, "transactional.id": pipeline.name})
    producer.init_transactions(30)
    for number, commits in ((-1, False), (FEW + 5, True)):
        producer.begin_transaction()
        producer.produce(pipeline.name, json.dumps({"id": f"k{number}", "n": number}).encode(), partition=0)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    pipeline.add_partition(3)
    pipeline.send(events(range(FEW + 6, FEW + 8)), partition=lambda _: 2)
    wait_until(lambda: rows(pipeline) == FEW + 8, "the new partition is read")
    stop(pipeline)

    assert has_one_row_each(pipeline, FEW + 8)
    assert pipeline.ledger()["read"] == FEW + 8
