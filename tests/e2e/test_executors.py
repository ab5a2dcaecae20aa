"""Executors are killed while a pipeline runs on a real cluster: nothing is lost, nothing is written twice.

A standalone master with two workers, each with a loopback address of its own.
"""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.cluster import running_cluster
from tests.e2e.support import TINY_BLOCK, Pipeline, cli, rows, start, state, stop
from tests.e2e.test_object_store import COPIES, EVENTS, EXACT, with_copies
from tests.support.processes import descendants
from tests.support.variants import fault_seed
from tests.support.waiting import wait_until

PARTITIONS = 4
ON_CLUSTER = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
# Spark ends a query with the fourth failure of a task, and counts the loss of an executor as one.
MANY_FAILURES = {"spark.task.maxFailures": "20"}
# An executor that is silent for longer is lost.
SILENT_FOR = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "5s",
    "spark.network.timeoutInterval": "1s",
}


@contextmanager
def on_cluster(pipeline: Pipeline, settings: dict[str, str]) -> Iterator[None]:
    """Write the definition of a pipeline that runs on two workers while the block runs, in batches of many blocks."""
    with running_cluster(2, apart=True) as url:
        pipeline.more["spark"] = {"spark.master": url, **ON_CLUSTER, **settings}
        pipeline.more["resources"] = {"transform": [{"source_id": "events", "replicas": PARTITIONS}]}
        pipeline.sink = {"max_batch_size": TINY_BLOCK}
        pipeline.write().create_topic()
        yield


def executors() -> list[int]:
    """Return the process ids of the executors of this test's workers."""
    found = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in command:
                found.append(pid)
    return found


def kill_in_batch(pipeline: Pipeline, draw: random.Random) -> None:
    """Kill one of the executors when some of a batch is in the table; the batch must be open then."""
    before, read = rows(pipeline), pipeline.ledger()["read"]
    wait_until(lambda: rows(pipeline) > before, "some of the batch is in the table", evidence=lambda: state(pipeline))
    os.kill(draw.choice(wait_until(executors, "there is an executor")), signal.SIGKILL)
    assert pipeline.ledger()["read"] == read, "the batch was over before: make it larger"


@pytest.mark.long
def test_an_executor_that_is_killed_in_a_batch_is_replaced(pipeline: Pipeline) -> None:
    """Twice, so that the keys are rebuilt in another process than the one that had them in memory."""
    draw = random.Random(fault_seed())
    sent = with_copies()
    with on_cluster(pipeline, {**MANY_FAILURES, **SILENT_FOR}):
        start(pipeline)
        try:
            for part in (sent[:4000], sent[4000:]):
                pipeline.send(part)
                kill_in_batch(pipeline, draw)
            wait_until(lambda: pipeline.ledger()["read"] == len(sent), "all is read", evidence=lambda: state(pipeline))
        finally:
            stop(pipeline)
    assert pipeline.query(EXACT) == [(EVENTS, EVENTS)]
    ledger = pipeline.ledger()
    assert (ledger["read"], ledger["written"], ledger["duplicates"]) == (len(sent), EVENTS, COPIES)
    found = cli("verify", pipeline.name, "--exact", "--pipelines", str(pipeline.file.parent))
    assert found.code == 0, found.out + found.err
