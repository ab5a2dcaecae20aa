"""A standalone cluster whose hosts are lost: the driver goes on elsewhere, from the object store alone."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from glassflow_dagster.control import hosts
from glassflow_dagster.control.launch import Action, LaunchFailed
from glassflow_dagster.control.runners.standalone import StandaloneRunner
from glassflow_dagster.control.status import StreamState
from glassflow_dagster.control.stop import Ending
from glassflow_dagster.local.object_store import SECRET_KEY
from tests.cluster.hosts import Host
from tests.control.runners.conftest import Cluster, Place
from tests.e2e.support import invoke, rows
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.long]
EVENTS = 4000
# Seconds: the master misses the worker first; then the batch is repeated by a new driver with new executors.
_AFTER_LOSS = 300.0


def send(place: Place, first: int, count: int) -> None:
    place.pipeline.send({"id": f"k{number}", "n": number} for number in range(first, first + count))


def launched(place: Place) -> Place:
    """Launch a pipeline, and have it read 100 records."""
    place.launch()
    send(place, 0, 100)
    wait_until(lambda: place.pipeline.ledger()["read"] == 100, "all is read")
    return place


def on_another_host(place: Place, folder: Path) -> Place:
    """Return the same pipeline as a host sees it that has not submitted its driver. folder: that host's, empty."""
    assert isinstance(place.runner, StandaloneRunner)
    return replace(place, runner=replace(place.runner, state=folder))


def host_of(place: Place) -> Host:
    """Return the host of the pipeline's driver."""
    [host] = [host for host in place.hosts if set(host.processes()) & set(place.drivers())]
    return host


def command_lines(cluster: Cluster) -> list[bytes]:
    """Return the command lines of all processes of the hosts."""
    found = []
    for host in cluster.network.hosts.values():
        for pid in host.processes():
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


def test_a_lost_host_takes_nothing_with_it(place_of: Callable[[str], Place], cluster: Cluster) -> None:
    """Its processes and its disk are gone at once, in a batch; the master starts the driver on the other worker."""
    place = place_of("cluster")
    place.pipeline.sink = {"max_batch_size": 100}
    place.pipeline.write()
    place.launch()
    lost = host_of(place)
    before = place.drivers()
    send(place, 0, EVENTS)
    wait_until(
        lambda: place.pipeline.query("EXISTS {db}.events") == [(1,)] and rows(place.pipeline) > 0,
        "some of the batch is in the table",
        evidence=lambda: place.runner.logs(place.config()),
    )
    lost.lose()
    try:
        send(place, EVENTS // 2, EVENTS)
        wait_until(
            lambda: place.pipeline.ledger()["read"] == 2 * EVENTS,
            "all is read",
            _AFTER_LOSS,
            evidence=lambda: (place.runner.status(place.config()), place.runner.logs(place.config())),
        )
        assert place.drivers() not in ([], before)
        # The master has given it another id, by which it is found and stopped.
        wait_until(lambda: place.state() is StreamState.RUNNING, "it runs", evidence=place.state)
        assert place.runner.stop(place.config()) is Ending.STOPPED
        wait_until(lambda: not place.drivers(), "its process has ended")
    finally:
        cluster.spark.start_worker(lost)
    expected = EVENTS + EVENTS // 2
    assert place.pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(expected, expected)]
    assert place.pipeline.ledger()["duplicates"] == EVENTS // 2


def test_another_host_leaves_a_driver_alone_that_the_master_has_started_again(
    place_of: Callable[[str], Place], cluster: Cluster, tmp_path: Path
) -> None:
    """Nothing is heard of it until it has reached its checkpoint."""
    first = launched(place_of("cluster"))
    second = on_another_host(first, tmp_path / "second")
    lost = host_of(first)
    lost.lose_power()
    try:
        wait_until(first.drivers, "the master has started it again", _AFTER_LOSS)
        [again] = first.drivers()
        os.kill(again, signal.SIGSTOP)
        wait_until(lambda: "started in its place" in second.runner.status(second.config()).message, "it is seen")
        assert second.state() is StreamState.STARTING
        assert second.ensure()[1] is Action.HEALTH_CHECKED
        os.kill(again, signal.SIGCONT)
        send(first, 50, 100)
        wait_until(lambda: first.pipeline.ledger()["read"] == 200, "all is read", _AFTER_LOSS, evidence=second.state)
        assert first.drivers() == [again]
    finally:
        lost.cut(off=False)
        cluster.spark.start_worker(lost)
    assert first.pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(150, 150)]


@pytest.mark.parametrize("kind", ["client", "cluster"])
def test_the_executors_are_on_both_workers_and_no_secret_is_on_a_command_line(
    place_of: Callable[[str], Place], cluster: Cluster, kind: str
) -> None:
    place = launched(place_of(kind))
    for host in place.hosts:
        assert any("CoarseGrainedExecutorBackend" in command for command in host.processes().values()), host.name
    assert not [line for line in command_lines(cluster) if SECRET_KEY.encode() in line]


def test_another_host_sees_keeps_redeploys_and_stops_a_driver_that_it_has_not_submitted(
    place_of: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = launched(place_of("cluster"))
    second = on_another_host(first, tmp_path / "second")

    wait_until(lambda: second.state() is StreamState.RUNNING, "it is seen", evidence=second.state)
    seen = second.runner.status(second.config())
    assert seen.host in {host.name for host in second.hosts}
    assert seen.wanted
    before = first.drivers()
    assert second.ensure()[1] is Action.HEALTH_CHECKED
    with pytest.raises(LaunchFailed, match="running already"):
        second.launch()
    assert first.drivers() == before

    first.pipeline.window = "2h"
    first.pipeline.write()
    assert second.ensure()[1] is Action.REDEPLOYED
    assert set(first.drivers()).isdisjoint(before)
    wait_until(lambda: first.state() is StreamState.RUNNING, "the first host sees it", evidence=first.state)
    assert first.ensure()[1] is Action.HEALTH_CHECKED

    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "second")
        assert second.runner.stop(second.config()) is Ending.STOPPED
    wait_until(lambda: not first.drivers(), "its process has ended")
    # The first host would start it again.
    for place in (first, second):
        status = place.runner.status(place.config())
        assert (status.state, status.wanted) == (StreamState.STOPPED, False)
    send(first, 50, 100)
    assert first.ensure()[1] is Action.LAUNCHED
    wait_until(lambda: first.pipeline.ledger()["read"] == 200, "all is read")
    assert first.pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(150, 150)]
    # Stopped by the host that has not started it, by ClickHouse alone.
    assert second.runner.stop(second.config()) is Ending.STOPPED
    wait_until(lambda: not first.drivers(), "its process has ended")


def test_a_driver_that_died_before_it_read_the_stop_is_started_again_by_its_worker_and_ends(
    place_of: Callable[[str], Place],
) -> None:
    place = launched(place_of("cluster"))
    wait_until(lambda: place.runner.status(place.config()).heartbeat, "its heartbeat is in ClickHouse")
    [driver] = place.drivers()
    os.kill(driver, signal.SIGSTOP)
    hosts.tell_stopped(place.config())
    place.kill_driver()
    wait_until(
        lambda: place.state() is StreamState.STOPPED,
        "it has ended for good",
        evidence=lambda: place.runner.logs(place.config()),
    )
    assert "was stopped; this driver ends, and is not started again" in place.runner.logs(place.config())
    assert place.drivers() == []
    # A start is a submission of its own.
    send(place, 50, 100)
    assert place.ensure()[1] is Action.LAUNCHED
    wait_until(lambda: place.pipeline.ledger()["read"] == 200, "all is read")


def test_the_commands_reach_a_driver_of_another_host(place_of: Callable[[str], Place]) -> None:
    place = place_of("cluster")
    place.launch()
    name, state = place.pipeline.name, str(place.pipeline.state)
    found = invoke("status", name, "--json", "--state", state)
    assert found.code == 0, found.err
    shown = json.loads(found.out)
    assert shown["state"] == "RUNNING"
    assert shown["message"].startswith("driver-")
    assert f"{name} is running" in invoke("logs", name, "--state", state).out
    assert invoke("stop", name, "--state", state).out == f"{name}: stopped\n"
    assert "STOPPED" in invoke("status", name, "--state", state).out
