"""What a host does about a cluster's driver by what master and ClickHouse say of it; neither is contacted."""

import io
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.control import hosts
from glassflow_dagster.control.deployment import LAUNCH_TIMEOUT, DriverOptions
from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, make_pipeline_folder, pipeline_folder
from glassflow_dagster.control.hosts import Shared
from glassflow_dagster.control.launch import Action
from glassflow_dagster.control.runners.kubernetes.runner import KubernetesRunner
from glassflow_dagster.control.runners.notes import write_note
from glassflow_dagster.control.runners.remote import LAUNCH_NOTE, Known, RemoteDriver
from glassflow_dagster.control.runners.settings import SparkSubmitSettings
from glassflow_dagster.control.runners.standalone import StandaloneRunner
from glassflow_dagster.control.status import StreamState, StreamStatus
from glassflow_dagster.control.stop import Ending
from glassflow_dagster.control.wanted import want
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.control import may_take_over
from glassflow_dagster.runtime import direct
from glassflow_dagster.stores.clickhouse.errors import ClickHouseUnreachable
from tests.control.runners.test_spark_submit import MASTER, pipeline

OWN, OTHER = "own submission", "other submission"
S = StreamState


class Host:
    """A host with a runner. own: state of its own driver; None for none. shared: what ClickHouse knows; None: away."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config: PipelineConfig = pipeline()
        self.own: StreamState | None = None
        self.shared: Shared | None = Shared(self.here(folder), 0, 0, is_stopped=False)
        self.asked: list[str] = []
        settings = SparkSubmitSettings(master=MASTER, deploy_mode="cluster")
        self.runner = StandaloneRunner(**vars(DriverOptions(folder)), settings=settings)
        self.folder = pipeline_folder(folder, "orders")
        make_pipeline_folder(self.folder)
        monkeypatch.setattr(StandaloneRunner, "find", lambda *_: self.driver())
        monkeypatch.setattr(hosts, "look", self.look)
        monkeypatch.setattr(hosts, "tell_stopped", lambda _: self.ask("told"))
        monkeypatch.setattr(hosts, "stop", lambda *_: self.ask("stopped"))

    def here(self, folder: Path) -> StreamStatus:
        return StreamStatus("orders", S.STOPPED, "", None, folder, wanted=False)

    def driver(self) -> RemoteDriver | None:
        fingerprint = self.config.fingerprint
        return RemoteDriver("driver-1", self.own, "", fingerprint, "", OWN) if self.own else None

    def look(self, *_: Any) -> Shared:
        if self.shared is None:
            raise ClickHouseUnreachable("ClickHouse does not answer")
        return self.shared

    def ask(self, what: str) -> Ending:
        self.look()
        self.asked.append(what)
        return Ending.STOPPED

    def sees(
        self, state: StreamState, submission: str, epoch: int, *, wanted: bool = True, requests: int = 0,
        fingerprint: str | None = None, updated_at: float = 0.0,
    ) -> None:  # fmt: skip
        """Let ClickHouse know a newest driver. requests: to stop it."""
        beat = Heartbeat(
            pipeline_id="orders", state=DriverState.RUNNING, pid=1, process_started="", updated_at=updated_at,
            fingerprint=fingerprint or self.config.fingerprint, submission=submission,
        )  # fmt: skip
        status = StreamStatus("orders", state, "", beat, Path("/there"), wanted=wanted, host="worker1")
        self.shared = Shared(status, epoch, requests, is_stopped=requests > 0)

    def has_launched(self, epoch: int, requests: int = 0) -> None:
        """Note a launch. epoch, requests: what ClickHouse knew then."""
        want(self.folder)
        write_note(self.folder / LAUNCH_NOTE, Known(epoch=epoch, requests=requests))

    def status(self) -> StreamStatus:
        return self.runner.status(self.config)

    def would_start(self) -> bool:
        """Return whether an automatic run would start a driver."""
        status = self.status()
        is_idle = self.runner.action_for(self.config, status) is not Action.HEALTH_CHECKED
        return status.wanted and may_take_over(status, self.config) and is_idle


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


@pytest.mark.parametrize("has_launched", [False, True])
@pytest.mark.parametrize(
    ("state", "starts", "action"),
    [
        (S.RUNNING, False, Action.HEALTH_CHECKED),
        (S.STARTING, False, Action.HEALTH_CHECKED),
        (S.STALLED, True, Action.RESTARTED),
        (S.STALE, True, Action.RESTARTED),
        (S.FAILED, True, Action.RESTARTED),
        # By whoever has ended it, who is about to start it again or not.
        (S.STOPPED, False, Action.LAUNCHED),
    ],
)
def test_a_newer_driver_of_another_host_is_seen_and_replaced_where_it_does_not_work(
    host: Host, has_launched: bool, state: StreamState, starts: bool, action: Action
) -> None:
    if has_launched:
        # Its own driver was fenced off, and the master says that it has finished.
        host.own = S.STOPPED
        host.has_launched(epoch=1)
    host.sees(state, OTHER, epoch=3)
    assert (host.status().state, host.status().host) == (state, "worker1")
    assert host.runner.action_for(host.config, host.status()) is action
    assert host.would_start() is starts


@pytest.mark.parametrize(
    ("age", "driver_state", "submission", "state"),
    [
        (10.0, "RUNNING", OTHER, S.STARTING),
        # Within its batch, or it hangs.
        (60.0, "RUNNING", OTHER, S.STALE),
        (10.0, "FINISHED", OTHER, S.STALE),
        (10.0, "RUNNING", OWN, S.STALE),
    ],
)
def test_what_the_master_has_started_again_since_a_driver_was_heard_of_is_left_alone(
    host: Host, monkeypatch: pytest.MonkeyPatch, age: float, driver_state: str, submission: str, state: StreamState
) -> None:
    """age: of the driver at the master, in seconds; the heartbeat's is 40."""
    now = time.time()
    answers = cluster_answers(now - age, driver_state, submission)
    answer_pages(monkeypatch, answers)
    host.sees(S.STALE, OTHER, epoch=3, updated_at=now - 40)
    assert host.status().state is state
    assert host.status().host == "worker1"
    assert host.would_start() is (state is S.STALE)


def test_one_that_was_started_again_long_ago_is_replaced(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    answers = cluster_answers(now - LAUNCH_TIMEOUT - 10, "RUNNING", OTHER)
    answer_pages(monkeypatch, answers)
    host.sees(S.STALE, OTHER, epoch=3, updated_at=now - LAUNCH_TIMEOUT - 40)
    assert host.status().state is S.STALE
    assert host.would_start()


def test_without_the_masters_page_a_silent_driver_is_replaced(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_pages(monkeypatch, {})
    host.sees(S.STALE, OTHER, epoch=3, updated_at=time.time() - 40)
    assert host.would_start()


def answer_pages(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, str]) -> None:
    """Answer requests by URL; all others are refused."""

    def answer(request: urllib.request.Request, **_: Any) -> io.BytesIO:
        if request.full_url not in answers:
            raise ConnectionRefusedError
        return io.BytesIO(answers[request.full_url].encode())

    monkeypatch.setattr(direct.opener, "open", answer)


def cluster_answers(started_at: float, state: str, submission: str) -> dict[str, str]:
    """Return what the pages of a master with one driver, and of its worker, answer."""
    driver = {"id": "driver-7", "starttime": f"{started_at * 1000:.0f}", "state": state, "worker": "worker-2"}
    which = "activedrivers" if state == "RUNNING" else "completeddrivers"
    cluster = {which: [driver], "workers": [{"id": "worker-2", "webuiaddress": "http://worker-2:8081"}]}
    output = "http://worker-2:8081/log/?driverId=driver-7&logType=stderr&byteLength=65536&offset=0"
    return {
        "http://127.0.0.1:8080/json/": json.dumps(cluster),
        output: f"==== Bytes 0-60 of 60 ====\nLaunch Command: java -Dspark.glassflow.submission={submission} ...",
    }


def test_a_driver_of_another_host_with_another_definition_is_replaced_by_a_user_only(host: Host) -> None:
    host.sees(S.RUNNING, OTHER, epoch=3, fingerprint="older")
    assert host.runner.action_for(host.config, host.status()) is Action.REDEPLOYED
    assert not host.would_start()


@pytest.mark.parametrize("submission", [OWN, OTHER])
@pytest.mark.parametrize("state", [S.STOPPED, S.FAILED, S.STALE])
def test_what_any_host_has_stopped_is_not_started_again(host: Host, state: StreamState, submission: str) -> None:
    host.own = S.STOPPED
    host.has_launched(epoch=1, requests=2)
    host.sees(state, submission, epoch=3, requests=3, wanted=submission == OWN)
    assert not host.status().wanted
    assert not host.would_start()


def test_a_start_after_a_stop_that_fails_at_once_is_tried_again(host: Host) -> None:
    """The newest driver that ClickHouse knows is the one that was stopped before."""
    host.own = S.FAILED
    host.has_launched(epoch=3, requests=1)
    host.sees(S.STOPPED, OTHER, epoch=3, requests=1, wanted=False)
    assert (host.status().state, host.status().host) == (S.FAILED, "")
    assert host.would_start()


@pytest.mark.parametrize("state", [S.RUNNING, S.FAILED])
def test_a_heartbeat_of_a_driver_that_was_killed_is_no_other_driver(host: Host, state: StreamState) -> None:
    host.own = S.STOPPED
    host.has_launched(epoch=2)
    host.sees(state, OWN, epoch=3)
    assert (host.status().state, host.status().host) == (S.STOPPED, "")
    assert host.would_start()


def test_of_an_own_driver_the_heartbeat_is_shown(host: Host) -> None:
    host.own = S.RUNNING
    host.has_launched(epoch=2)
    host.sees(S.STALLED, OWN, epoch=3)
    assert (host.status().state, host.status().host) == (S.STALLED, "")
    host.sees(S.STALLED, OTHER, epoch=2)
    assert host.status().state is S.RUNNING


def test_a_stop_ends_a_driver_of_another_host(host: Host) -> None:
    host.sees(S.RUNNING, OTHER, epoch=3)
    assert host.runner.stop(host.config) is Ending.STOPPED
    assert host.asked == ["told", "stopped"]
    host.sees(S.FAILED, OTHER, epoch=3)
    assert host.runner.stop(host.config) is Ending.NOT_RUNNING
    # Its cluster may start it again.
    assert host.asked[2:] == ["told", "told"]


def test_a_driver_of_another_host_is_asked_to_end_before_one_is_launched(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: object) -> None:
        raise GlassflowError("submitted")

    monkeypatch.setattr(StandaloneRunner, "submit", submit)
    for epoch, (state, asked) in enumerate([(S.STALLED, "stopped"), (S.STALE, "told"), (S.FAILED, "told")], 3):
        host.sees(state, OTHER, epoch)
        with pytest.raises(GlassflowError, match="submitted"):
            host.runner.ensure_running(host.config, print)
        assert host.asked.pop() == asked
    assert host.asked == []


def test_a_clickhouse_that_does_not_answer_is_named_and_nothing_is_launched(host: Host) -> None:
    host.shared = None
    assert "never started from here; what other hosts know of it is not known: ClickHouse does" in host.status().message
    actions: list[Callable[[], object]] = [
        lambda: host.runner.stop(host.config),
        lambda: host.runner.ensure_running(host.config, print),
        lambda: host.runner.launch(host.config, print),
    ]
    for act in actions:
        with pytest.raises(GlassflowError, match="ClickHouse does not answer"):
            act()


def test_on_kubernetes_which_knows_all_drivers_the_launcher_need_not_reach_clickhouse(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.shared = None
    submitted, said = list[str](), list[str]()
    running = RemoteDriver("driver-1", S.RUNNING, "", host.config.fingerprint, "")
    monkeypatch.setattr(KubernetesRunner, "find", lambda *_: running if submitted else None)
    monkeypatch.setattr(KubernetesRunner, "submit", lambda _, config, __: submitted.append(config.pipeline_id))
    monkeypatch.setattr(KubernetesRunner, "log_of", lambda *_: "2026-11-29 18:00:00 orders is running")
    assert KubernetesRunner(host.folder.parent).ensure_running(host.config, said.append)[1] is Action.LAUNCHED
    assert submitted == ["orders"]
    assert said == ["orders: what other hosts know of it is not known: ClickHouse does not answer"]


def test_a_stop_while_clickhouse_is_away_ends_the_own_driver_and_says_that_others_do_not_know(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.shared = None
    host.own = S.RUNNING

    def end(*_: object, **__: object) -> None:
        host.own = S.STOPPED

    monkeypatch.setattr(StandaloneRunner, "ask_to_end", end)
    monkeypatch.setattr(StandaloneRunner, "log_of", lambda *_: "")
    with pytest.raises(GlassflowError, match=r"^orders: stopped; other hosts, .* could not be told: ClickHouse"):
        host.runner.stop(host.config)
