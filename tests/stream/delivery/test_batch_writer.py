"""The progress that a batch writer reports to the driver, and how the driver stops it between batches."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glassflow_dagster.runtime.metrics.measures import Measures
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stream.delivery.batch_writer import BatchWriter, StopBetweenBatches, WriterProgress
from glassflow_dagster.stream.stages.record_counter import BatchOutcomes
from tests.stream.delivery.test_partition_writer import batch_plan, batch_writer
from tests.support.waiting import DEADLINE

PLAN = batch_plan({"t": {0: (0, 2)}})
FRAME: Any = SimpleNamespace(sparkSession=None)


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BatchWriter:
    """Return a writer whose batches read two records each, without any server."""
    monkeypatch.setattr(BatchWriter, "plan_batch", lambda *_: (PLAN, False))
    monkeypatch.setattr(BatchWriter, "write_blocks", lambda *_, **__: (BatchOutcomes(read=2), Measures()))
    monkeypatch.setattr(
        BatchWriter, "write_ledger_row", lambda self, *_, **__: self.progress().totals + Totals(read=2, waiting=3)
    )
    return batch_writer(tmp_path)


def test_progress_is_the_last_batch_that_is_in_the_ledger_and_the_totals_with_it(writer: BatchWriter) -> None:
    assert writer.progress() == WriterProgress()
    writer(FRAME, 0)
    before = writer.progress()
    writer(FRAME, 1)
    assert writer.progress() == WriterProgress(PLAN, read=2, totals=Totals(read=4, waiting=3))
    assert before.totals.read == 2, "a snapshot does not change"


def test_the_events_that_waited_before_are_where_the_totals_begin(writer: BatchWriter) -> None:
    assert replace(writer, waiting=7).progress().totals == Totals(waiting=7)


def test_a_batch_that_fails_is_not_in_the_progress(writer: BatchWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Totals:
        raise OSError

    monkeypatch.setattr(BatchWriter, "write_ledger_row", fail)
    with pytest.raises(OSError):  # noqa: PT011 - the test's own
        writer(FRAME, 0)
    assert writer.progress() == WriterProgress()
    assert not writer.has_refused_batch


def test_a_writer_that_was_stopped_refuses_the_next_batch(writer: BatchWriter) -> None:
    assert writer.stop() is None
    assert not writer.has_refused_batch
    with pytest.raises(StopBetweenBatches):
        writer(FRAME, 0)
    assert writer.has_refused_batch
    assert writer.progress().last is None


def test_a_stop_waits_for_the_batch_that_is_being_written(writer: BatchWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, stopped = threading.Event(), threading.Event(), []

    def write(*_: object, **__: object) -> tuple[BatchOutcomes, Measures]:
        begun.set()
        assert go_on.wait(DEADLINE)
        return BatchOutcomes(read=2), Measures()

    monkeypatch.setattr(BatchWriter, "write_blocks", write)
    batch = threading.Thread(target=writer, args=(FRAME, 0))
    batch.start()
    assert begun.wait(DEADLINE)
    stop = threading.Thread(target=lambda: stopped.append(writer.stop()))
    stop.start()
    assert writer.progress().is_writing
    assert not stopped
    go_on.set()
    stop.join(DEADLINE)
    batch.join(DEADLINE)
    assert stopped == [PLAN]
    assert not writer.progress().is_writing


def test_a_writer_of_one_batch_refuses_every_other(writer: BatchWriter) -> None:
    only = replace(writer, only_batch=4, waiting=0)
    with pytest.raises(StopBetweenBatches):
        only(FRAME, 5)
    only(FRAME, 4)
    assert only.progress().last == PLAN
