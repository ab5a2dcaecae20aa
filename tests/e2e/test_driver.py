"""Drivers in the background: waiting for topics, delays of batches, crashes and restarts."""

import json
import os
import random
import signal
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.launch import Action, ensure_driver, launch_driver
from glassflow_dagster.control.status import StreamState
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from tests.e2e.support import (
    Pipeline,
    begin_large_batch,
    invoke,
    kill,
    lock_holder,
    require_batch_under_way,
    rows,
    start,
    state,
    status,
    stop,
    wait_for_first_row,
)
from tests.support.waiting import DEADLINE, wait_until

# Errors that need no Spark are found before it starts.
SPARK_STARTS = "starting Spark"


@pytest.mark.long
def test_a_topic_is_waited_for_few_events_do_not_wait_for_more_and_ctrl_c_ends_behind_a_batch(
    pipeline: Pipeline,
) -> None:
    pipeline.write()
    command = [sys.executable, "-m", "glassflow_dagster", "run", str(pipeline.file), "--state", str(pipeline.state)]
    command += ["--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        try:
            wait_until(lambda: state(pipeline) == "WAITING", "the driver waits for its topic")
            pipeline.create_topic()
            wait_until(lambda: state(pipeline) == "RUNNING", "the driver has found its topic")
            # Far fewer than max_batch_size: max_delay_time starts the batch.
            pipeline.send([{"id": "a", "n": 1}, {"id": "a", "n": 1}])
            wait_until(lambda: rows(pipeline) == 1, "the row has arrived")
            pipeline.add_partition(3)
            pipeline.send([{"id": "b", "n": 2}], lambda _: 2)
            wait_until(lambda: rows(pipeline) == 2, "a partition that was added is read")
            again = pipeline.run_without_spark("--until-caught-up")
            assert again.code == 1
            assert "is running already" in again.err
            driver.send_signal(signal.SIGINT)
            out, err = driver.communicate(timeout=60)
        finally:
            driver.kill()
    assert driver.returncode == 0, err
    totals = json.loads(out.splitlines()[-1])
    assert (totals["read"], totals["written"]) == (3, 2)
    assert state(pipeline) == "STOPPED"
    require_json_lines(pipeline, out, err)


def require_json_lines(pipeline: Pipeline, out: str, err: str) -> None:
    """Check all that a driver has printed: the totals on stdout alone, its messages and those of the JVM on stderr."""
    assert len(out.splitlines()) == 1
    lines = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level", "checkpoint", "batch"} < set(line) for line in lines)
    assert {line["pipeline"] for line in lines} == {pipeline.name}
    messages = [line["message"] for line in lines]
    assert any(message.startswith(f"waiting: topic '{pipeline.name}' does not exist") for message in messages)
    assert "WARNING: Using incubator modules: jdk.incubator.vector" in messages
    batches = [line for line in lines if "read" in line]
    checkpoint = Checkpoint(pipeline.state / pipeline.name / "checkpoint")
    identity, last = checkpoint.identity(), checkpoint.last_committed()
    assert identity
    assert last
    assert {line["checkpoint"] for line in batches} == {identity.checkpoint_id}
    assert (lines[0]["checkpoint"], lines[0]["batch"]) == (None, None)
    figures = {name: batches[-1][name] for name in ("batch", "read", "written", "duplicates", "dead_letters", "late")}
    assert figures == {
        "batch": last.batch_id, "read": 3, "written": 2, "duplicates": 1, "dead_letters": 0, "late": 0,
    }  # fmt: skip


@pytest.mark.long
def test_a_topic_that_is_deleted_ends_its_pipeline_for_good(pipeline: Pipeline) -> None:
    """A pipeline waits only for a topic that never existed: of a deleted topic, unread records are lost."""
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    start(pipeline)
    log = pipeline.state / pipeline.name / "driver.log"
    try:
        wait_until(lambda: rows(pipeline) == 1, "the row has arrived")
        admin = AdminClient({"bootstrap.servers": pipeline.brokers})
        admin.delete_topics([pipeline.name])[pipeline.name].result(30)
        wait_until(lambda: state(pipeline) == "FAILED", "the running driver has ended")
        assert f"topic {pipeline.name} does not exist on {pipeline.brokers} any more" in log.read_text()
    finally:
        stop(pipeline)
    again = invoke("start", str(pipeline.file), "--state", str(pipeline.state))
    assert again.code == 1
    assert f"topic {pipeline.name} does not exist on {pipeline.brokers} any more: it was deleted after " in again.err
    assert "next offsets: partition 0: 1, partition 1: 0" in again.err
    assert "--accept-loss" in again.err
    assert state(pipeline) == "FAILED"
    assert log.read_text().count("waiting: topic") == 1


def test_a_driver_killed_in_the_middle_of_its_batches_loses_and_doubles_nothing(pipeline: Pipeline) -> None:
    """Kill the driver twice; each restart continues from the checkpoint."""
    pipeline.sink = {"max_batch_size": 100}
    pipeline.write().create_topic()
    draw = random.Random(3)
    events = [{"id": f"k{index}", "n": index} for index in range(14_000)]
    sent = events + draw.sample(events, 2000)
    draw.shuffle(sent)
    start(pipeline)
    try:
        for part in (sent[:8000], sent[8000:]):
            before = rows(pipeline)
            pipeline.send(part)
            wait_until(lambda before=before: rows(pipeline) > before, "some of the batch is in the table")
            kill(pipeline)
            start(pipeline)
        wait_until(lambda: pipeline.ledger()["read"] == len(sent), "all is read")
    finally:
        stop(pipeline)
    assert pipeline.query("SELECT count(), uniqExact(id), sum(n) FROM {db}.events") == [
        (14_000, 14_000, sum(range(14_000)))
    ]
    ledger = pipeline.ledger()
    assert (ledger["written"], ledger["duplicates"]) == (14_000, 2000)


@pytest.mark.long
def test_a_driver_whose_jvm_is_killed_says_so_in_a_line_and_goes_on_when_started_again(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    command = [sys.executable, "-m", "glassflow_dagster", "run", str(pipeline.file), "--state", str(pipeline.state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        try:
            wait_for_first_row(pipeline)
            jvm = lock_holder(pipeline).jvm
            assert jvm is not None
            os.kill(jvm, signal.SIGKILL)
            _, err = driver.communicate(timeout=DEADLINE)
        finally:
            driver.kill()
    assert driver.returncode == 1
    assert "error: Spark's JVM ended" in err.splitlines()[-1]
    assert "Traceback" not in err
    pipeline.send([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    pipeline.catch_up()
    assert pipeline.query("SELECT id, n FROM {db}.events ORDER BY id") == [("a", 1), ("b", 2)]


@pytest.mark.long
def test_a_driver_whose_jvm_is_stopped_is_stalled_until_that_goes_on_or_it_is_restarted(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = (
        "import sys; from glassflow_dagster.control import log_file; from glassflow_dagster.driver import run; "
        "from glassflow_dagster.driver.watch import progress_watch; "
        "progress_watch.JVM_SILENCE = 5.0; log_file.LIMIT = 200; log_file.OLDER_FILES = 100; sys.exit(run.main())"
    )
    monkeypatch.setattr("glassflow_dagster.control.deployment.DRIVER", (sys.executable, "-c", impatient))
    pipeline.write().create_topic()
    pipeline.send([{"id": "k0", "n": 0}])
    deployment = Deployment(pipeline.state, config=load_pipeline(pipeline.file))
    launch_driver(deployment)
    try:
        wait_until(lambda: rows(pipeline) == 1, "the first row has arrived")
        jvm = lock_holder(pipeline).jvm
        assert jvm
        os.kill(jvm, signal.SIGSTOP)
        pipeline.send({"id": f"k{index}", "n": index} for index in range(1, 51))
        wait_until(lambda: state(pipeline) == "STALLED", "the silence is noticed")
        assert f"Spark's JVM (pid {jvm}) has not answered for" in status(pipeline)["message"]
        os.kill(jvm, signal.SIGCONT)
        wait_until(lambda: rows(pipeline) == 51 and state(pipeline) == "RUNNING", "it goes on")

        os.kill(jvm, signal.SIGSTOP)
        pipeline.send({"id": f"k{index}", "n": index} for index in range(51, 101))
        wait_until(lambda: state(pipeline) == "STALLED", "the silence is noticed again")
        found, action = ensure_driver(deployment)
        assert (found.state, action) == (StreamState.RUNNING, Action.RESTARTED)
        wait_until(lambda: rows(pipeline) == 101, "all is read")
    finally:
        stop(pipeline)
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(101, 101)]
    logs = list((pipeline.state / pipeline.name).glob("driver.log*"))
    # Several times, as it has 200 bytes; with all messages of both drivers and of both JVMs.
    assert len(logs) > 2
    lines = [line for log in logs for line in log.read_text().splitlines()]
    for text, times in ((f" {pipeline.name} is running", 2), ("jdk.incubator.vector", 2), (" continues", 1)):
        assert sum(line.endswith(text) for line in lines) == times


def test_ctrl_c_ends_a_wait_for_a_server_at_once(pipeline: Pipeline) -> None:
    pipeline.write()
    command = [sys.executable, "-m", "glassflow_dagster", "run", str(pipeline.file), "--state", str(pipeline.state)]
    environment = {**os.environ, "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{free_port()}"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as driver:
        assert driver.stderr is not None
        # Among lines of the JVM that starts meanwhile.
        assert any("cannot be reached" in line for line in driver.stderr)
        driver.send_signal(signal.SIGINT)
        # Without Ctrl-C the wait would take five minutes.
        assert driver.wait(timeout=60) == 0


@pytest.mark.long
def test_an_edited_definition_finishes_a_begun_batch_as_it_was_begun(pipeline: Pipeline) -> None:
    """Begin a batch, kill the driver, edit the block size: the repeated batch has the blocks of the old definition."""
    begin_large_batch(pipeline, 10_000)
    kill(pipeline)
    require_batch_under_way(pipeline)

    pipeline.sink = {"max_batch_size": 70}
    pipeline.write()
    totals = pipeline.catch_up()

    assert totals["read"] == 10_000
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(10_000, 10_000)]


@pytest.mark.long
def test_a_killed_pipeline_without_deduplication_repeats_its_blocks_under_their_names(pipeline: Pipeline) -> None:
    """Without a shuffle Spark orders a repeated batch's partitions differently: no block may be named by that order."""
    pipeline.sink = {"max_batch_size": 50}
    pipeline.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
    pipeline.write(dedup=False).create_topic(partitions=4)
    pipeline.send(({"id": f"k{index}", "n": index} for index in range(15_000)), lambda index: index % 4)
    start(pipeline)
    wait_until(lambda: rows(pipeline) > 0, "the first block is in the table")
    kill(pipeline)
    pipeline.catch_up()
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(15_000, 15_000)]
    assert pipeline.ledger()["written"] == 15_000


def test_a_key_cannot_change_under_its_state(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    pipeline.catch_up()
    pipeline.keys = ["n"]
    pipeline.write()
    done = pipeline.run_without_spark("--until-caught-up")
    assert done.code == 1
    assert "was built for deduplication by id string, but the definition says deduplication by n int" in done.err
    assert SPARK_STARTS not in done.err
    assert "Traceback" not in done.err


def test_another_topic_cannot_go_on_from_a_checkpoint(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    pipeline.catch_up()
    other = Pipeline(pipeline.folder, pipeline.brokers, pipeline.clickhouse_port)
    other.create_topic()
    pipeline.file.write_text(pipeline.file.read_text().replace(f"topic: {pipeline.name}", f"topic: {other.name}"))
    done = pipeline.run_without_spark("--until-caught-up")
    assert done.code == 1
    assert f"reads topic {pipeline.name}, but the definition says {other.name}" in done.err
    assert SPARK_STARTS not in done.err
    assert "Traceback" not in done.err


def test_a_lost_checkpoint_does_not_double_the_table(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    pipeline.catch_up()
    pipeline.state.rename(pipeline.folder / "elsewhere")
    done = pipeline.run_without_spark("--until-caught-up")
    assert done.code == 1
    assert "it has written to" in done.err
    assert SPARK_STARTS not in done.err
    assert "--start-over" in done.err
    assert rows(pipeline) == 1
    # An empty table proves nothing: its rows may have been moved.
    pipeline.client().command(f"TRUNCATE TABLE {pipeline.name}.events")
    assert pipeline.run_without_spark("--until-caught-up").code == 1
    pipeline.client().command(f"INSERT INTO {pipeline.name}.events SETTINGS async_insert = 0 VALUES ('b', 2)")
    done = pipeline.run_without_spark("--until-caught-up", "--start-over")
    assert done.code == 1
    assert f"TRUNCATE TABLE `{pipeline.name}`.`events`" in done.err
    pipeline.client().command(f"TRUNCATE TABLE {pipeline.name}.events")
    assert pipeline.catch_up(start_over=True)["written"] == 1
    assert rows(pipeline) == 1
