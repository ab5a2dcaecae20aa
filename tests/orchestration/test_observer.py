"""The observer sensor: what it records, and when it requests a restart, by the stream's state."""

import time
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from glassflow_dagster.control.heartbeat import DriverState, Heartbeat
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.status import StreamState, StreamStatus
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.state import State
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import build_asset_keys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG
from glassflow_dagster.orchestration.build_definitions import Orchestration, build_pipeline_definitions
from glassflow_dagster.orchestration.observer import (
    MAX_RESTARTS,
    Cursor,
    Mark,
    Observation,
    Observed,
    evaluate,
    load_cursor,
)
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from tests.orchestration.joins import JOIN_FIGURES, joined_pipeline

CONFIG = load_pipeline(Path(__file__).parents[2] / "pipelines" / "sms_status.yaml")
NAMES = build_asset_keys(CONFIG)
ONE = Observed(CONFIG, NAMES)
JOIN = joined_pipeline()
JOINED = Observed(JOIN, build_asset_keys(JOIN))


def status(state: StreamState, *, wanted: bool = True, pid: int = 7, batch: int = 1) -> StreamStatus:
    heartbeat = Heartbeat(
        pipeline_id="sms_status",
        state=DriverState.RUNNING,
        pid=pid,
        process_started="1",
        updated_at=time.time(),
        fingerprint="f",
        batch_id=batch,
        lag=5,
        lags={"sms_status_events": 5},
        totals=Totals(read=3, written=2, duplicates=1),
    )
    return StreamStatus("sms_status", state, "why", heartbeat, Path("state/sms_status"), wanted)


def test_a_running_stream_is_observed_asset_by_asset() -> None:
    found = evaluate(status(StreamState.RUNNING), ONE, Mark())
    assert not found.restart
    figures = {event.asset_key: event.metadata for event in found.events}
    assert list(figures) == NAMES.assets
    raw, deduplicated, table = NAMES.assets
    assert figures[raw]["lag"].value == 5
    assert figures[deduplicated]["state"].value == "RUNNING"
    assert figures[table]["written_since_start"].value == 2


def test_a_join_is_observed_topic_by_topic_and_its_events_at_the_joined_stream() -> None:
    running = status(StreamState.RUNNING)
    assert running.heartbeat
    totals = Totals(read=30, matched=7, unmatched=2, waiting=3, late=1, accepted=12, null_keys=4, joined=6, written=5)
    update = {"lags": {"auction.bids": 5, "auction.lots": 8}, "state_bytes": 4096, "totals": totals}
    running = replace(running, heartbeat=running.heartbeat.model_copy(update=update))
    found = evaluate(running, JOINED, Mark())
    figures = {
        event.asset_key.path[-1]: {name: value.value for name, value in event.metadata.items()}
        for event in found.events
    }
    assert list(figures) == [key.path[-1] for key in build_asset_keys(JOIN).assets]
    assert (figures["raw_auction_bids"], figures["raw_auction_lots"]) == ({"lag": 5}, {"lag": 8})
    assert figures["deduplicated_auction_bids"] == {"state": "RUNNING", "message": "why"}
    joined = {name: figures["joined_bids_lots"][name] for name in JOIN_FIGURES}
    assert joined == {
        "matched": 7, "unmatched": 2, "waiting": 3, "late": 1, "accepted": 12, "null_keys": 4, "joined": 6,
        "state_bytes": 4096,
    }  # fmt: skip
    assert figures["bids"]["written_since_start"] == 5


def test_a_join_whose_driver_left_no_word_is_observed_at_the_joined_stream() -> None:
    never = replace(status(StreamState.STOPPED), heartbeat=None)
    [observed] = evaluate(never, JOINED, Mark()).events
    assert observed.asset_key == build_asset_keys(JOIN).joined


def test_nothing_new_is_not_recorded_again() -> None:
    first = evaluate(status(StreamState.RUNNING), ONE, Mark())
    again = evaluate(status(StreamState.RUNNING), ONE, first.mark)
    assert not again.events
    assert evaluate(status(StreamState.RUNNING, batch=2), ONE, again.mark).events


@pytest.mark.parametrize("state", [StreamState.FAILED, StreamState.STALLED, StreamState.STALE, StreamState.STOPPED])
def test_a_wanted_stream_that_does_not_run_is_brought_back_once_for_each_death(state: StreamState) -> None:
    found = evaluate(status(state), ONE, Mark())
    request = found.restart
    assert request
    assert request.asset_selection == NAMES.assets
    assert request.tags[AUTOMATED_TAG] == "restart"
    assert request.tags["glassflow/reason"] == state.value
    assert not evaluate(status(state), ONE, found.mark).restart


def test_without_restarts_a_dead_stream_is_only_recorded() -> None:
    found = evaluate(status(StreamState.FAILED), ONE, Mark(), restarts=False)
    assert found.events
    assert not found.restart


@pytest.mark.parametrize("state", [StreamState.FAILED, StreamState.STOPPED])
def test_a_stream_that_nobody_wants_is_left_alone(state: StreamState) -> None:
    assert evaluate(status(state, wanted=False), ONE, Mark(mark="7")) == Observation(Mark(mark="7"))


def test_a_stream_that_never_ran_is_left_alone() -> None:
    never = replace(status(StreamState.STOPPED, wanted=False), heartbeat=None)
    assert evaluate(never, ONE, Mark()) == Observation(Mark())


def requests_for(seen: Mark, *looks: StreamStatus) -> tuple[int, Mark]:
    """Evaluate one status after another; return the number of requested restarts, and the last mark."""
    asked = 0
    for found in looks:
        answer = evaluate(found, ONE, seen)
        asked += answer.restart is not None
        seen = answer.mark
    return asked, seen


def test_a_stream_that_keeps_dying_is_left_to_the_health_check_until_it_has_closed_a_batch() -> None:
    # Observed running before each death, the stream has closed no batch nevertheless.
    lives = [status(state, pid=pid) for pid in range(10) for state in (StreamState.RUNNING, StreamState.FAILED)]
    asked, seen = requests_for(Mark(), *lives)
    assert asked == MAX_RESTARTS
    asked, seen = requests_for(seen, status(StreamState.FAILED, pid=98, batch=2), status(StreamState.RUNNING, batch=2))
    assert asked == 1
    # Never observed running, the stream may have closed batches between two evaluations.
    asked, _ = requests_for(seen, *(status(StreamState.FAILED, pid=pid, batch=pid) for pid in range(3, 13)))
    assert asked == 10


def test_a_driver_that_has_not_told_its_batch_yet_has_closed_none() -> None:
    beat = status(StreamState.STARTING).heartbeat
    assert beat
    starting = replace(status(StreamState.STARTING), heartbeat=beat.model_copy(update={"batch_id": None}))
    lives = [found for pid in range(10) for found in (starting, status(StreamState.FAILED, pid=pid))]
    assert requests_for(Mark(), *lives)[0] == MAX_RESTARTS


@pytest.mark.parametrize(
    ("state", "store", "restarts"),
    [
        (StreamState.RUNNING, "s3a://bucket/p", 0),
        (StreamState.STALE, "s3a://bucket/p", 1),
        (StreamState.FAILED, "s3a://bucket/p", 1),
        # Its checkpoint is on the other host.
        (StreamState.STALE, None, 0),
    ],
)
def test_a_stream_of_another_host_is_restarted_where_its_checkpoint_can_be_reached(
    state: StreamState, store: str | None, restarts: int
) -> None:
    config = CONFIG.model_copy(update={"state": State(url=store) if store else None})
    there = replace(status(state), host="elsewhere")
    found = evaluate(there, Observed(config, NAMES), Mark())
    assert (found.restart is not None) == bool(restarts)
    # A driver of this host with the same process id is another one.
    assert found.mark != evaluate(status(state), Observed(config, NAMES), Mark()).mark


def test_a_memory_of_another_version_is_forgotten() -> None:
    assert load_cursor('{"marks": 1}') == Cursor()


class Recorded(LocalRunner):
    """Returns the statuses of a test; one that is missing cannot be read."""

    statuses: dict[str, StreamStatus]

    def status(self, config: PipelineConfig) -> StreamStatus:
        if config.pipeline_id not in self.statuses:
            raise GlassflowError("heartbeat.json: cannot be read")
        return self.statuses[config.pipeline_id]


def test_one_sensor_observes_all_pipelines_and_one_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    runner = Recorded(tmp_path)
    object.__setattr__(runner, "statuses", {"sms_status": status(StreamState.FAILED)})
    defs = build_pipeline_definitions([JOIN, CONFIG], Orchestration(runner=runner))
    repository = defs.get_repository_def()
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(instance=instance, repository_def=repository) as context,
    ):
        tick = repository.get_sensor_def("glassflow__observer").evaluate_tick(context)
    [request] = tick.run_requests or []
    assert request.asset_selection == NAMES.assets
    assert len(tick.asset_events) == 3
    assert set(load_cursor(tick.cursor).marks) == {"sms_status", JOIN.pipeline_id}
