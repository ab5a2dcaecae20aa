"""A driver on another host is seen, stopped and replaced from here. The hosts share ClickHouse, Kafka and the store.

Another host is another state folder, whose files nobody here reads.
"""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.control import hosts
from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.launch import Action, launch_driver
from glassflow_dagster.control.lock import end_remains
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.status import StreamState, stream_status
from glassflow_dagster.control.stop import Ending, stop_driver
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.driver.start import open_checkpoint
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.orchestration.control import Mode, control, ensure_if_wanted
from glassflow_dagster.stores.bookkeeping.drivers import insert_report
from glassflow_dagster.stores.bookkeeping.fencing import Epoch
from glassflow_dagster.stores.bookkeeping.stop_requests import stop_requester
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stream.delivery.batch_clock import ClockMoved
from tests.e2e.support import Finished, Pipeline, invoke, kill, rows, start, state
from tests.servers.object_store import ObjectStoreServer
from tests.support.waiting import wait_until


@pytest.fixture
def elsewhere(pipeline: Pipeline, object_store: ObjectStoreServer) -> Iterator[Pipeline]:
    """Return a pipeline that runs on another host, with its checkpoint in the store, and has read an event."""
    pipeline.more["state"] = object_store.definition()
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    start(pipeline)
    wait_until(lambda: rows(pipeline) == 1, "the row has arrived")
    yield pipeline
    invoke("stop", pipeline.name, "--state", str(pipeline.state), "--pipelines", str(pipeline.file.parent))


def command(pipeline: Pipeline, name: str, here: Path, *options: str) -> Finished:
    return invoke(name, pipeline.name, "--state", str(here), "--pipelines", str(pipeline.file.parent), *options)


def test_a_driver_on_another_host_is_seen_and_stopped(elsewhere: Pipeline, tmp_path: Path) -> None:
    here = tmp_path / "here"
    wait_until(lambda: hosts.status(here, load_pipeline(elsewhere.file)).state is StreamState.RUNNING, "it is seen")
    shown = command(elsewhere, "status", here)
    assert shown.out.startswith(f"{elsewhere.name}: RUNNING - on host ")
    assert f"driver.log on host {hosts.status(here, load_pipeline(elsewhere.file)).host}" in shown.out
    assert not here.exists()

    started = command(elsewhere, "start", here)
    assert started.code == 0, started.err
    assert "health checked, running" in started.out

    stopped = command(elsewhere, "stop", here)
    assert (stopped.code, stopped.out) == (0, f"{elsewhere.name}: stopped\n"), stopped.err
    wait_until(lambda: state(elsewhere) == "STOPPED", "the driver has ended")
    # Nothing on its host takes that for a failure.
    assert not stream_status(elsewhere.state, elsewhere.name).wanted
    assert not hosts.status(here, load_pipeline(elsewhere.file)).wanted
    assert command(elsewhere, "status", here).out.startswith(f"{elsewhere.name}: STOPPED - stopped normally on host ")
    assert command(elsewhere, "stop", here).out == f"{elsewhere.name}: not running\n"


@pytest.mark.long
def test_dagster_on_another_host_takes_over_once_the_host_is_lost(
    elsewhere: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, runner = load_pipeline(elsewhere.file), LocalRunner(tmp_path / "here")
    wait_until(lambda: runner.status(config).state is StreamState.RUNNING, "it is seen")
    assert control(Mode.ENSURE, config, runner, print)[1] == Action.HEALTH_CHECKED.value
    # An automatic run leaves it alone also where the definition differs; both hosts would alternate.
    edited = config.model_copy(update={"checks": config.checks.model_copy(update={"every": "1 * * * *"})})
    assert not isinstance(ensure_if_wanted(edited, runner, print), tuple)

    kill(elsewhere)
    end_remains(elsewhere.state / elsewhere.name)
    # On its own host its process is known to be dead at once.
    assert runner.status(config).state is StreamState.FAILED
    monkeypatch.setattr(hosts, "STALE_AFTER", 0.0)
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    assert runner.status(config).state is StreamState.STALE
    assert runner.status(config).wanted
    elsewhere.send([{"id": "a", "n": 2}, {"id": "b", "n": 3}])
    try:
        taken = ensure_if_wanted(config, runner, print)
        assert isinstance(taken, tuple)
        wait_until(lambda: rows(elsewhere) == 2, "it goes on here")
        assert runner.status(config).host == ""
    finally:
        stop_driver(runner.state, elsewhere.name)


@pytest.mark.long
def test_a_driver_without_work_notices_that_another_host_has_taken_over(elsewhere: Pipeline, tmp_path: Path) -> None:
    config, here = load_pipeline(elsewhere.file), tmp_path / "here"
    launch_driver(Deployment(here, config=config))
    try:
        wait_until(lambda: state(elsewhere) == "FAILED", "the older driver has ended, though no record came")
        assert "another driver" in stream_status(elsewhere.state, elsewhere.name).message
        assert not stream_status(elsewhere.state, elsewhere.name).wanted
    finally:
        stop_driver(here, elsewhere.name)


def test_a_host_with_a_wrong_clock_does_not_take_over(
    elsewhere: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches would be refused, after it had stopped the driver that works."""
    monkeypatch.setattr(open_checkpoint, "server_lead_ms", lambda _: 3_600_000)
    config, options = load_pipeline(elsewhere.file), RunOptions(tmp_path / "here", until_caught_up=True)
    with pytest.raises(ClockMoved, match="the clock of this machine is implausible"):
        run_pipeline(config, options, print)
    elsewhere.send([{"id": "b", "n": 2}])
    wait_until(lambda: rows(elsewhere) == 2, "the other one goes on")
    assert state(elsewhere) == "RUNNING"


@pytest.fixture
def other_version(pipeline: Pipeline) -> tuple[PipelineConfig, Client, Epoch]:
    """Return a pipeline whose driver on another host reports heartbeats that this version cannot read."""
    config = load_pipeline(pipeline.write().file)
    client, database = connect(config.sink.connection_params), config.sink.connection_params.database
    ensure_bookkeeping(client, database)
    epoch = Epoch(database, config.pipeline_id, str(uuid4()), 3, str(uuid4()))
    insert_report(client, epoch, "/state/there", '{"of": "another version"}', wanted=True, is_last=False)
    return config, client, epoch


def test_a_driver_of_another_version_is_asked_to_stop_and_not_taken_for_stopped(
    other_version: tuple[PipelineConfig, Client, Epoch], tmp_path: Path
) -> None:
    config, client, epoch = other_version
    assert "of another version" in hosts.status(tmp_path, config).message
    with pytest.raises(GlassflowError, match=r"of another version.*It is asked to stop"):
        hosts.stop(tmp_path, config)
    assert stop_requester(client, epoch.database, epoch.pipeline_id, epoch.number) == socket.gethostname()


def test_an_old_heartbeat_of_another_version_does_not_keep_a_pipeline_from_being_stopped(
    other_version: tuple[PipelineConfig, Client, Epoch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "STALE_AFTER", 0.0)
    assert hosts.stop(tmp_path, other_version[0]) is Ending.NOT_RUNNING


def test_without_clickhouse_the_status_says_what_is_not_known(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "AWAY_SECONDS", 600.0)
    # A port of its own: it is remembered which servers have not answered other tests of this process.
    away = replace(pipeline, clickhouse_port=free_port()).write()
    found = hosts.status(tmp_path, load_pipeline(away.file))
    assert found.state is StreamState.STOPPED
    assert found.message == "never started here; drivers on other hosts are not known: ClickHouse does not answer"
    again = hosts.status(tmp_path, load_pipeline(away.file))
    assert again.message.endswith("ClickHouse did not answer a moment ago")
