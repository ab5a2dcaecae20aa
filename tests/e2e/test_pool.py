"""Pipelines that share one JVM: started, killed, stopped and edited without the others."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassflow_dagster.control.heartbeat import pipeline_folder, read_heartbeat
from glassflow_dagster.control.pool_endpoint import pool_folder, read_endpoint
from glassflow_dagster.driver.pool.crashes import HELD_AFTER, CrashHistory
from glassflow_dagster.runtime.process import start_of
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
)
from tests.servers.stack import Stack
from tests.support.processes import descendants
from tests.support.variants import one_of
from tests.support.waiting import wait_until

POOL = "small"


class Pool:
    """A state folder whose pipelines share a pool."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        self._folder, self._stack = folder, stack
        self.state = folder / "state"

    def pipeline(self) -> Pipeline:
        return Pipeline(self._folder, self._stack.kafka, self._stack.clickhouse_port, more={"pool": POOL})

    def started(self) -> Pipeline:
        """Start a pipeline on a topic of one event; return it when its row has arrived."""
        pipeline = self.pipeline().write()
        pipeline.create_topic()
        pipeline.send([{"id": "first", "n": 0}])
        start(pipeline)
        wait_until(lambda: rows(pipeline) == 1, "the first row has arrived")
        return pipeline

    @property
    def pid(self) -> int | None:
        endpoint = read_endpoint(pool_folder(self.state, POOL))
        return endpoint.pid if endpoint else None

    @property
    def jvm(self) -> int:
        """Return the process id of the JVM."""
        assert self.pid
        (jvm,) = (pid for pid in descendants(self.pid) if "java" in Path(f"/proc/{pid}/comm").read_text())
        return jvm


@pytest.fixture
def pool(stack: Stack, tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(tmp_path, stack)
    yield pool
    for folder in pool.state.iterdir():
        if (folder / "heartbeat.json").exists():
            invoke("stop", folder.name, "--state", str(pool.state))
    assert invoke("pool", "stop", POOL, "--state", str(pool.state)).code == 0
    assert pool.pid is None


def driver(pipeline: Pipeline) -> int:
    beat = read_heartbeat(pipeline_folder(pipeline.state, pipeline.name))
    assert beat
    return beat.pid


@pytest.mark.long
def test_pipelines_share_a_jvm_and_are_killed_edited_and_stopped_without_the_others(pool: Pool) -> None:
    killed, other = pool.started(), pool.started()
    assert pool.pid
    # The first driver has started the pool.
    of_pool = {pool.pid, *descendants(pool.pid)}
    assert {*descendants(driver(killed)), *descendants(driver(other))} <= of_pool
    listed = invoke("pool", "list", "--state", str(pool.state))
    assert listed.out.strip() == f"{POOL}: running (pid {pool.pid}): {', '.join(sorted((killed.name, other.name)))}"

    other_driver, process = driver(other), pool.pid
    kill(killed)
    for pipeline in (killed, other):
        pipeline.send([{"id": f"k{index % 40}", "n": index % 40} for index in range(60)])
    wait_until(lambda: rows(other) == 41, "the other pipeline goes on")
    start(killed)
    wait_until(lambda: rows(killed) == 41, "the killed pipeline continues")
    killed.window = "2h"
    killed.write()
    start(killed)
    killed.send([{"id": "k1", "n": 1}, {"id": "last", "n": 1}])
    wait_until(lambda: rows(killed) == 42, "the edited pipeline continues, and knows its keys")
    wait_until(lambda: killed.ledger()["duplicates"] == 21, "the batch is in the ledger")
    assert (driver(other), pool.pid) == (other_driver, process)

    stop(killed)
    assert state(killed) == "STOPPED"
    refused = invoke("pool", "stop", POOL, "--state", str(pool.state))
    assert (refused.code, refused.err) == (1, f"error: pool {POOL}: stop its pipelines first: {other.name}\n")
    other.send([{"id": "last", "n": 1}])
    wait_until(lambda: rows(other) == 42, "the other pipeline still goes on")
    wait_until(lambda: status(other)["totals"]["duplicates"] == 20, "the heartbeat has all batches")


@pytest.mark.parametrize("stays", one_of([True, False]))
@pytest.mark.long
def test_a_driver_killed_in_a_batch_of_many_records_loses_and_doubles_nothing(stays: bool, pool: Pool) -> None:
    """The batch is a job: its tasks run in processes of the pool, also where the next driver has a JVM of its own."""
    pipeline = pool.pipeline()
    begin_large_batch(pipeline, 20_000, as_job=True)
    kill(pipeline)
    require_batch_under_way(pipeline)
    assert lock_holder(pipeline).pool == POOL
    if not stays:
        del pipeline.more["pool"]
        pipeline.write()
    start(pipeline)
    wait_until(lambda: pipeline.ledger()["read"] == 20_000, "all is read")
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(20_000, 20_000)]


@pytest.mark.long
def test_the_end_of_the_jvm_ends_all_drivers_and_they_start_another(pool: Pool) -> None:
    pipelines = [pool.started(), pool.started()]
    process = pool.pid
    os.kill(pool.jvm, signal.SIGKILL)
    for pipeline in pipelines:
        wait_until(lambda pipeline=pipeline: state(pipeline) == "FAILED", "the driver has ended")
        assert "Spark's JVM ended" in status(pipeline)["message"]
    wait_until(lambda: pool.pid is None, "the pool has ended")
    for pipeline in pipelines:
        pipeline.send([{"id": "first", "n": 0}, {"id": "second", "n": 1}])
        start(pipeline)
    for pipeline in pipelines:
        wait_until(lambda pipeline=pipeline: rows(pipeline) == 2, "the pipeline continues")
        wait_until(lambda pipeline=pipeline: pipeline.ledger()["duplicates"] == 1, "it knows its keys")
    assert pool.pid != process


@pytest.mark.long
def test_a_pipeline_whose_batch_was_open_at_each_end_of_the_jvm_is_held_back(pool: Pool) -> None:
    bad = pool.pipeline()
    begin_large_batch(bad, 4_000, as_job=True)
    os.kill(pool.jvm, signal.SIGKILL)
    wait_until(lambda: state(bad) == "FAILED", "the driver has ended")
    require_batch_under_way(bad)
    wait_until(lambda: pool.pid is None, "the pool has ended")
    folder = pool_folder(pool.state, POOL)
    history = wait_until(lambda: CrashHistory.read(folder).crashes, "the end of the JVM is noted")
    assert [*history[0].batches] == [bad.name]
    # It ends the JVM twice more.
    for _ in range(HELD_AFTER - 1):
        CrashHistory.read(folder).note(folder, history[0])

    other = pool.started()
    refused = invoke("start", str(bad.file), "--state", str(bad.state))
    assert refused.code == 1
    assert (
        f"{bad.name} is held back, so that the others of pool {POOL} go on: its batch 0 (offsets 0 to " in refused.err
    )
    assert state(other) == "RUNNING"


@pytest.mark.long
def test_a_pool_that_is_killed_leaves_no_process(pool: Pool) -> None:
    pipeline = pool.started()
    process, jvm = pool.pid, pool.jvm
    assert process
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: state(pipeline) == "FAILED", "the driver has ended")
    wait_until(lambda: start_of(jvm) is None, "the JVM has ended")
    # Its lock has a JVM that is not this driver's, and that a later driver of the pipeline must not kill.
    assert lock_holder(pipeline).jvm is None


def test_a_setting_of_the_jvm_is_refused(pool: Pool) -> None:
    pipeline = pool.pipeline().write()
    pipeline.create_topic()
    refused = pipeline.run("--conf", "spark.driver.memory=2g")
    assert refused.code == 1
    assert f"glassflow-dagster pool start {POOL} --conf spark.driver.memory=VALUE" in refused.err
    assert pool.pid is None
