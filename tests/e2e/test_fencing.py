"""An older driver writes nothing once a newer one has begun, whatever it was doing and however long it was stopped."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from glassflow_dagster.control.heartbeat import STALE_AFTER, pipeline_folder, read_heartbeat, write_heartbeat
from glassflow_dagster.control.stop import take_over
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.stores.bookkeeping.fencing import CHECK_VALID_SECONDS
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from tests.e2e.support import Pipeline, begin_large_batch, lock_holder, require_batch_under_way, status
from tests.faults.http_proxy import Answer, Exchange, HttpProxy
from tests.support.variants import one_of
from tests.support.waiting import DEADLINE, wait_until

# Tokens that the table remembers in this test: fewer than a batch has blocks.
FEW_TOKENS = 5


def freeze(pipeline: Pipeline) -> dict[int, str]:
    """Stop a driver, its JVM and its Python workers (SIGSTOP); return pid -> start time."""
    folder = pipeline_folder(pipeline.state, pipeline.name)
    beat = read_heartbeat(folder)
    assert beat is not None
    found = {beat.pid: beat.process_started, **lock_holder(pipeline).processes()}
    assert len(found) > 2, "a driver, a JVM and a worker at least"
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    # Date the heartbeat back, so that it looks half a minute old to a second driver.
    write_heartbeat(folder, beat.model_copy(update={"updated_at": time.time() - STALE_AFTER - 1}))
    return found


def living(processes: Mapping[int, str]) -> list[int]:
    return [pid for pid, started in processes.items() if start_of(pid) == started]


def forget_tokens(pipeline: Pipeline) -> None:
    """Insert other blocks until the table has forgotten all tokens; a repeated insert that adds rows proves it."""
    client = pipeline.client()
    client.command(
        f"ALTER TABLE {pipeline.name}.events MODIFY SETTING non_replicated_deduplication_window = {FEW_TOKENS}"
    )
    for token in ("probe", *(f"other {number}" for number in range(2 * FEW_TOKENS)), "probe"):
        client.command(
            f"INSERT INTO {pipeline.name}.events SETTINGS async_insert = 0, insert_deduplication_token = '{token}' "
            f"VALUES ('{token}', -1)"
        )
    assert pipeline.query("SELECT count() FROM {db}.events WHERE id = 'probe'") == [(2,)]
    client.command(f"DELETE FROM {pipeline.name}.events WHERE n = -1")


@pytest.mark.long
def test_a_driver_that_was_stopped_in_its_batch_and_taken_over_is_dead_and_writes_nothing(pipeline: Pipeline) -> None:
    begin_large_batch(pipeline, 10_000)
    older = freeze(pipeline)
    require_batch_under_way(pipeline)

    take_over(pipeline.state, pipeline.name)
    totals = pipeline.catch_up()
    forget_tokens(pipeline)

    assert living(older) == []
    assert totals["written"] == 10_000
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(10_000, 10_000)]


class Gate:
    """Holds back a driver's fencing queries on their way to ClickHouse, from its first insert until it is opened.

    The insert's answer waits until the writer's last check is no longer valid, so each writer asks before its next one.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._closed = False
        self._opened = threading.Event()

    def pass_or_wait(self, exchange: Exchange) -> Answer | None:
        """Return the answer of an insert; None for a request that passes as it is."""
        if self._opened.is_set():
            return None
        if self._closed and b"glassflow_epochs" in exchange.statement:
            self.waiting += 1
            self._opened.wait(DEADLINE)
        if exchange.table != "events":
            return None
        answer = exchange.forward()
        self._closed = True
        time.sleep(CHECK_VALID_SECONDS)
        return answer

    def open(self) -> None:
        self._opened.set()


@pytest.mark.parametrize("as_job", one_of([False, True]))
@pytest.mark.long
def test_a_driver_that_slept_while_a_copy_of_its_checkpoint_ran_writes_nothing_when_it_wakes(
    pipeline: Pipeline, as_job: bool
) -> None:
    """Simulate two hosts, where no lock helps: all writers stop before an insert, then the table forgets tokens.

    An inline batch has one writer, the driver; a job has a worker for each partition.
    """
    events = 10_000
    gate, proxy = Gate(), HttpProxy(free_port(), pipeline.clickhouse_port)
    proxy.change = gate.pass_or_wait
    older = replace(pipeline, clickhouse_port=proxy.port)
    try:
        begin_large_batch(older, events, as_job=as_job)
        begun = Checkpoint(older.state / older.name / "checkpoint").identity()
        assert begun is not None
        writers = begun.shuffle_partitions if as_job else 1
        wait_until(lambda: gate.waiting == writers, "no writer has an answer that counts")
        asleep = freeze(older)
        require_batch_under_way(pipeline)

        newer = replace(older, clickhouse_port=pipeline.clickhouse_port, folder=pipeline.folder / "elsewhere")
        shutil.copytree(older.state, newer.state, ignore=shutil.ignore_patterns("tmp"))
        newer.write()
        assert newer.catch_up()["written"] == events
        forget_tokens(pipeline)
        gate.open()
        for pid in asleep:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: status(older)["state"] == "FAILED", "the older driver has stopped")
    finally:
        proxy.close()

    assert f"with its state in {newer.state / newer.name}" in status(older)["message"]
    assert not (older.state / older.name / "wanted").exists()
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(events, events)]
    pipeline.send({"id": f"k{index}", "n": index} for index in range(events - 100, events + 100))
    assert newer.catch_up()["written"] == 100
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(events + 100, events + 100)]
    assert pipeline.ledger()["read"] == events + 200
