"""A machine whose clock was moved writes no batch until the clock is right or the user accepts it."""

import json
import time
from collections.abc import Iterable
from typing import Any

import pytest

from glassflow_dagster.driver.start import open_checkpoint
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.checkpoint import checkpoint as files
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.delivery.batch_clock import BatchClock, ClockMoved
from tests.e2e.support import Pipeline, rows

DAY_MS = 86_400_000


def events(*numbers: int) -> Iterable[dict[str, Any]]:
    return [{"id": f"k{number}", "n": number} for number in numbers]


def checkpoint(pipeline: Pipeline) -> Checkpoint:
    return Checkpoint(pipeline.state / pipeline.name / "checkpoint")


def begun(pipeline: Pipeline) -> Pipeline:
    pipeline.write().create_topic()
    pipeline.send(events(0, 1))
    pipeline.catch_up()
    return pipeline


def move(pipeline: Pipeline, name: str, by_ms: int) -> None:
    """Change the time in Spark's metadata of a batch. name: of its file, in the checkpoint."""
    storage = checkpoint(pipeline).storage
    version, about, *offsets = storage.read(name).decode().split("\n")
    noted = json.loads(about)
    noted["batchTimestampMs"] += by_ms
    files.replace_spark_file(storage, name, "\n".join([version, json.dumps(noted), *offsets]).encode())


@pytest.mark.long
def test_a_clock_that_was_ahead_of_what_it_is_stops_the_pipeline_until_it_is_accepted(pipeline: Pipeline) -> None:
    before = checkpoint(begun(pipeline))
    plan = before.last_committed()
    assert plan is not None
    assert plan.server_lead_ms is not None
    before.record(plan.model_copy(update={"batch_time_ms": plan.batch_time_ms + DAY_MS}))
    pipeline.send(events(1, 2))
    with pytest.raises(GlassflowError, match=r"^the clock of this machine is implausible.*--accept-clock`$"):
        pipeline.catch_up()
    assert rows(pipeline) == 2

    assert pipeline.catch_up(accept_clock=True)["written"] == 1
    pipeline.send(events(2, 3))
    totals = pipeline.catch_up()
    assert (totals["written"], totals["duplicates"]) == (1, 1)


@pytest.mark.long
def test_a_batch_that_a_moved_clock_began_is_begun_again(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(pipeline)
    pipeline.send(events(1, 2))

    def refuse(*_: object) -> None:
        raise ClockMoved("the clock")

    with monkeypatch.context() as patch:
        patch.setattr(open_checkpoint, "require_plausible_clock", lambda *_: None)
        patch.setattr(BatchClock, "require_plausible", refuse)
        with pytest.raises(GlassflowError, match=r"^the clock$"):
            pipeline.catch_up()
    open_batch = checkpoint(pipeline).last_begun
    assert open_batch is not None
    assert open_batch == checkpoint(pipeline).next_batch
    move(pipeline, f"offsets/{open_batch}", DAY_MS)

    totals = pipeline.catch_up()
    assert (totals["written"], totals["duplicates"]) == (1, 1)
    done = checkpoint(pipeline).plan(open_batch)
    assert done is not None
    assert done.batch_time_ms < time.time() * 1000
