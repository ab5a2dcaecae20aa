"""The contract of the runners: each test runs with each of them, with real drivers."""

import threading
from collections.abc import Callable

import pytest

from glassflow_dagster.control.launch import Action, LaunchFailed
from glassflow_dagster.control.status import StreamState
from glassflow_dagster.control.stop import Ending
from glassflow_dagster.errors import GlassflowError
from tests.control.runners.conftest import RUNNERS, THREADS_FAIL, Place
from tests.e2e.support import rows
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.long, THREADS_FAIL, pytest.mark.parametrize("kind", RUNNERS)]
PlaceOf = Callable[[str], Place]


def send(place: Place, first: int, count: int) -> None:
    place.pipeline.send({"id": f"k{number}", "n": number} for number in range(first, first + count))


def wait_for_rows(place: Place, count: int) -> None:
    """Wait until all of the events are in the table, each once."""
    pipeline = place.pipeline
    wait_until(
        lambda: pipeline.query("EXISTS {db}.events") == [(1,)] and rows(pipeline) >= count,
        f"{count} rows",
        evidence=lambda: (place.runner.status(place.config()), place.runner.logs(place.config())),
    )
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(count, count)]


def test_a_stream_is_launched_watched_and_stopped_in_good_order(place_of: PlaceOf, kind: str) -> None:
    place = place_of(kind)
    runner, name, config = place.runner, place.pipeline.name, place.config()
    before = runner.status(config)
    assert (before.state, before.wanted) == (StreamState.STOPPED, False)
    assert runner.stop(config) is Ending.NOT_RUNNING

    started = place.launch()
    assert (started.state, started.wanted) == (StreamState.RUNNING, True)
    send(place, 0, 100)
    wait_for_rows(place, 100)
    assert f"{name} is running" in runner.logs(config)
    assert runner.status(config).heartbeat is not None
    assert len(runner.logs(config, 1).splitlines()) == 1

    assert runner.stop(config) is Ending.STOPPED
    after = runner.status(config)
    assert (after.state, after.wanted) == (StreamState.STOPPED, False)
    wait_until(lambda: not place.drivers(), "its process has ended")
    # A batch that was begun is finished.
    assert place.pipeline.ledger()["read"] == 100


def test_a_healthy_stream_is_left_alone_and_an_edited_one_is_redeployed(place_of: PlaceOf, kind: str) -> None:
    place = place_of(kind)
    assert place.ensure()[1] is Action.LAUNCHED
    drivers = place.drivers()
    assert place.ensure()[1] is Action.HEALTH_CHECKED
    assert place.drivers() == drivers
    send(place, 0, 50)
    wait_for_rows(place, 50)

    place.pipeline.window = "2h"
    place.pipeline.write()
    status, action = place.ensure()
    assert (action, status.state) == (Action.REDEPLOYED, StreamState.RUNNING)
    assert place.drivers() != drivers
    # The keys are known, and the events are read once.
    send(place, 25, 50)
    wait_for_rows(place, 75)


def test_a_killed_stream_is_still_wanted_and_starts_again(place_of: PlaceOf, kind: str) -> None:
    place = place_of(kind)
    place.launch()
    send(place, 0, 50)
    wait_for_rows(place, 50)
    assert place.runner.kill(place.config()) is Ending.KILLED
    assert not place.is_up()
    assert place.runner.status(place.config()).wanted
    send(place, 25, 50)
    assert place.ensure()[0].state is StreamState.RUNNING
    wait_for_rows(place, 75)


def test_a_driver_that_dies_is_replaced(place_of: PlaceOf, kind: str) -> None:
    """By the cluster itself where that supervises drivers, else by whoever ensures that the stream runs."""
    place = place_of(kind)
    place.launch()
    send(place, 0, 50)
    wait_for_rows(place, 50)
    place.kill_driver()
    if not place.is_supervised:
        wait_until(lambda: place.state() is StreamState.FAILED, "the death is noticed")
        assert place.ensure()[1] is Action.RESTARTED
    send(place, 25, 50)
    wait_for_rows(place, 75)
    assert len(place.drivers()) == 1


def test_of_two_launches_at_once_one_driver_is_left(place_of: PlaceOf, kind: str) -> None:
    place = place_of(kind)
    problems: list[Exception] = []

    def launch() -> None:
        try:
            place.launch()
        except GlassflowError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=launch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [problem] = problems
    assert isinstance(problem, LaunchFailed)
    assert "running already" in str(problem)
    # Of a driver elsewhere the heartbeat is some seconds old.
    wait_until(lambda: place.state() is StreamState.RUNNING, "it runs", evidence=place.state)
    assert len(place.drivers()) == 1
    send(place, 0, 50)
    wait_for_rows(place, 50)


def test_a_launch_that_cannot_succeed_says_why_and_leaves_nothing_running(place_of: PlaceOf, kind: str) -> None:
    place = place_of(kind)
    place.pipeline.sink = {"create_table": None}
    place.pipeline.write()
    with pytest.raises(LaunchFailed, match="does not exist") as caught:
        place.launch()
    assert caught.value.tail
    status = place.runner.status(place.config())
    assert status.state not in {StreamState.RUNNING, StreamState.STARTING}
    # Whoever watches it tries again.
    assert status.wanted
    wait_until(lambda: not place.drivers(), "its process has ended")
