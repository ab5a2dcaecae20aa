"""Launching, monitoring, stopping and restarting driver processes, with real processes that do not run Spark."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from glassflow_dagster.control import deployment as module
from glassflow_dagster.control import log_file
from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.heartbeat import is_alive, write_heartbeat
from glassflow_dagster.control.launch import Action, LaunchFailed, ensure_driver, launch_driver
from glassflow_dagster.control.launch_lock import launching
from glassflow_dagster.control.log import LogFormat
from glassflow_dagster.control.state_folder import state_folder
from glassflow_dagster.control.status import StreamState, StreamStatus, stream_status
from glassflow_dagster.control.stop import Ending, stop_driver, take_over
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of
from tests.support.waiting import wait_until

ID = "sms_status"


def kill(status: StreamStatus) -> None:
    assert status.heartbeat is not None
    os.kill(status.heartbeat.pid, signal.SIGKILL)
    heartbeat = status.heartbeat
    wait_until(lambda: not is_alive(heartbeat), "the process is dead")


def test_a_pipeline_that_never_ran_is_stopped_and_not_wanted(state: Path) -> None:
    status = stream_status(state, ID)
    assert (status.state, status.message, status.wanted) == (StreamState.STOPPED, "never started here", False)


def test_a_launched_driver_runs_in_a_session_of_its_own_and_is_wanted(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_RUN_ID", "of the launching run")
    reports: list[str] = []
    status = launch_driver(replace(deployment, create_table=True, spark_config={"spark.x": "1"}), reports.append)
    assert status.state is StreamState.RUNNING
    assert status.wanted
    assert status.heartbeat is not None
    assert os.getsid(status.heartbeat.pid) == status.heartbeat.pid
    log = status.log.read_text()
    assert "'--create-table', '--conf', 'spark.x=1'" in log
    assert "dagster: []" in log
    assert str(status.heartbeat.pid) in reports[0]


def test_a_driver_that_waits_for_its_topic_counts_as_launched(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "waits")
    assert launch_driver(deployment).state is StreamState.WAITING


def test_a_driver_that_fails_is_reported_in_its_own_words_and_stays_wanted(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "fails")
    with pytest.raises(
        LaunchFailed, match=r"did not start: ClickHouse at 127.0.0.1:1 cannot be reached; start it; its log"
    ):
        launch_driver(deployment)
    status = stream_status(deployment.state, ID)
    assert (status.state, status.wanted) == (StreamState.FAILED, True)


def test_a_driver_that_dies_before_its_first_heartbeat_is_reported_with_the_end_of_its_own_log(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = deployment.state / ID / "driver.log"
    log.parent.mkdir(parents=True)
    log.write_text("of an earlier driver\n")
    monkeypatch.setenv("FAKE_DRIVER", "dies")
    with pytest.raises(LaunchFailed, match=r"did not start: java.lang.OutOfMemoryError; its log") as caught:
        launch_driver(deployment)
    assert "OutOfMemoryError" in caught.value.tail
    assert "earlier" not in caught.value.tail
    assert caught.value.log == log


def test_a_driver_that_logs_json_is_reported_with_its_reason_alone(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "glassflow_dagster.control.deployment.DRIVER", (sys.executable, "-m", "glassflow_dagster.driver.run")
    )
    file = deployment.config.origin.file
    assert file
    file.unlink()
    with pytest.raises(LaunchFailed, match=r"did not start: .*sms_status.yaml: .*; its log is") as caught:
        launch_driver(replace(deployment, log_format=LogFormat.JSON))
    assert caught.value.tail.startswith('{"time": ')


def test_a_full_log_is_rotated_at_a_launch(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "LIMIT", 20)
    log = deployment.state / ID / "driver.log"
    log.parent.mkdir(parents=True)
    log.write_text("of an earlier driver\n")
    monkeypatch.setenv("FAKE_DRIVER", "dies")
    with pytest.raises(LaunchFailed):
        launch_driver(deployment)
    assert log.with_name("driver.log.1").read_text() == "of an earlier driver\n"
    assert f"'--log-file', '{log}'" in log.read_text()


def test_a_driver_that_does_not_come_up_in_time_is_ended_and_its_last_message_reported(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "starts")
    reports: list[str] = []
    with pytest.raises(LaunchFailed, match=r"not up after 10 s \(ClickHouse at 127.0.0.1:1 cannot be reached"):
        launch_driver(replace(deployment, timeout=10), reports.append)
    assert reports[1] == "ClickHouse at 127.0.0.1:1 cannot be reached; start it"
    status = stream_status(deployment.state, ID)
    assert status.heartbeat is not None
    assert not is_alive(status.heartbeat)


def test_a_state_folder_that_cannot_be_written_is_named(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GlassflowError, match=r"file/sms_status: cannot be written .*choose another folder"):
        launch_driver(replace(deployment, state=tmp_path / "file"))


def test_a_running_stream_is_left_alone(deployment: Deployment) -> None:
    first, action = ensure_driver(deployment)
    assert action is Action.LAUNCHED
    second, action = ensure_driver(deployment)
    assert action is Action.HEALTH_CHECKED
    assert first.heartbeat is not None
    assert second.heartbeat is not None
    assert first.heartbeat.pid == second.heartbeat.pid


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let drivers begin, with their first heartbeat, only when this file is there."""
    file = tmp_path / "gate"
    wait = (
        f"import os, pathlib, sys, time\nwhile not pathlib.Path({str(file)!r}).exists(): time.sleep(0.02)\n"
        f"os.execv(sys.executable, [*{[*module.DRIVER]!r}, *sys.argv[1:]])"
    )
    monkeypatch.setattr("glassflow_dagster.control.deployment.DRIVER", (sys.executable, "-c", wait))
    return file


def test_a_stream_is_starting_from_its_launch_on_and_others_wait_for_that(deployment: Deployment, gate: Path) -> None:
    """Also one that was stopped before. A sensor would start it a second time."""
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(ensure_driver, deployment) for _ in range(2))
        wait_until(lambda: stream_status(deployment.state, ID).wanted, "the launch has begun")
        status = stream_status(deployment.state, ID)
        assert (status.state, status.message) == (StreamState.STARTING, "a driver is being started")
        gate.touch()
        found = [each.result(30) for each in (first, second)]
    assert {action for _, action in found} == {Action.LAUNCHED, Action.HEALTH_CHECKED}
    assert len({status.heartbeat.pid for status, _ in found if status.heartbeat}) == 1

    stop_driver(deployment.state, ID)
    assert stream_status(deployment.state, ID).state is StreamState.STOPPED
    with launching(deployment.folder):
        assert stream_status(deployment.state, ID).state is StreamState.STARTING


def test_a_stream_that_is_stopped_before_its_first_heartbeat_is_stopped(deployment: Deployment, gate: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        launched = pool.submit(launch_driver, deployment)
        wait_until(lambda: stream_status(deployment.state, ID).wanted, "the launch has begun")
        stopped = pool.submit(stop_driver, deployment.state, ID)
        wait_until(lambda: not stream_status(deployment.state, ID).wanted, "the stop has begun")
        gate.touch()
        assert stopped.result(30) is Ending.STOPPED
        # The launch may have seen it running for a moment.
        failure = launched.exception(30)
    assert failure is None or "it was stopped while it started" in str(failure)
    status = stream_status(deployment.state, ID)
    assert (status.state, status.wanted) == (StreamState.STOPPED, False)


def test_a_killed_stream_is_restarted(deployment: Deployment) -> None:
    kill(launch_driver(deployment))
    status = stream_status(deployment.state, ID)
    assert status.state is StreamState.FAILED
    assert "died without an error message" in status.message
    status, action = ensure_driver(deployment)
    assert (status.state, action) == (StreamState.RUNNING, Action.RESTARTED)


def test_an_edited_definition_is_redeployed(deployment: Deployment) -> None:
    first = launch_driver(deployment)
    file = deployment.config.origin.file
    assert file
    file.write_text(file.read_text().replace("time_window: 5m", "time_window: 6m"))
    edited = replace(deployment, config=load_pipeline(file))
    second, action = ensure_driver(edited)
    assert action is Action.REDEPLOYED
    assert first.heartbeat is not None
    assert second.heartbeat is not None
    assert second.heartbeat.fingerprint != first.heartbeat.fingerprint
    assert not is_alive(first.heartbeat)


def test_a_silent_driver_is_stale_and_restarted(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "silent")
    status = launch_driver(deployment)
    assert status.state is StreamState.STALE
    assert "no heartbeat for 3600 s" in status.message
    monkeypatch.delenv("FAKE_DRIVER")
    status, action = ensure_driver(deployment)
    assert (status.state, action) == (StreamState.RUNNING, Action.RESTARTED)


def test_a_stalled_driver_is_no_live_one_and_is_killed_and_restarted(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "stalls")
    launch_driver(deployment)
    wait_until(lambda: stream_status(deployment.state, ID).state is StreamState.STALLED, "the driver stalls")
    monkeypatch.delenv("FAKE_DRIVER")
    said: list[str] = []
    status, action = ensure_driver(deployment, said.append)
    assert (status.state, action) == (StreamState.RUNNING, Action.RESTARTED)
    assert any("which is STALLED: ClickHouse at 127.0.0.1:1" in line for line in said)


def test_a_driver_that_someone_else_is_starting_is_waited_for(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "late")
    (deployment.state / ID).mkdir(parents=True)
    with subprocess.Popen(deployment.command, start_new_session=True) as other:
        wait_until(lambda: stream_status(deployment.state, ID).state is StreamState.STARTING, "the other one starts")
        status, action = ensure_driver(deployment)
        assert (status.state, action) == (StreamState.RUNNING, Action.HEALTH_CHECKED)
        other.terminate()


def test_a_stopped_stream_is_stopped_in_good_order_and_not_wanted(deployment: Deployment) -> None:
    running = launch_driver(deployment)
    assert stop_driver(deployment.state, ID) is Ending.STOPPED
    status = stream_status(deployment.state, ID)
    assert (status.state, status.wanted) == (StreamState.STOPPED, False)
    assert running.heartbeat is not None
    assert not is_alive(running.heartbeat)
    assert stop_driver(deployment.state, ID) is Ending.NOT_RUNNING


def test_a_stream_that_the_machine_stopped_is_still_wanted(deployment: Deployment) -> None:
    running = launch_driver(deployment)
    assert running.heartbeat is not None
    os.kill(running.heartbeat.pid, signal.SIGTERM)
    wait_until(lambda: stream_status(deployment.state, ID).state is StreamState.STOPPED, "it has stopped")
    assert stream_status(deployment.state, ID).wanted


def test_a_driver_that_does_not_stop_is_killed_and_says_so(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "deaf")
    running = launch_driver(deployment)
    assert stop_driver(deployment.state, ID, timeout=0.5) is Ending.KILLED
    assert running.heartbeat is not None
    assert not is_alive(running.heartbeat)
    status = stream_status(deployment.state, ID)
    assert status.state is StreamState.STOPPED
    assert "was killed" in status.message


def test_a_driver_that_was_stopped_is_killed_by_a_take_over_at_once(deployment: Deployment) -> None:
    running = launch_driver(deployment)
    assert running.heartbeat is not None
    os.kill(running.heartbeat.pid, signal.SIGSTOP)
    silent = running.heartbeat.model_copy(update={"updated_at": time.time() - 3600})
    write_heartbeat(running.folder, silent)
    said: list[str] = []
    take_over(deployment.state, ID, said.append)
    assert len(said) == 1
    assert said[0].startswith(f"{ID}: ending the driver that runs it (pid {silent.pid}), which is STALE: no heartbeat")
    assert not is_alive(silent)
    assert stream_status(deployment.state, ID).wanted
    take_over(deployment.state, ID, said.append)
    assert len(said) == 1


def test_a_pid_that_another_process_has_taken_is_neither_alive_nor_stopped(deployment: Deployment) -> None:
    kill(running := launch_driver(deployment))
    assert running.heartbeat is not None
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            taken = running.heartbeat.model_copy(update={"pid": stranger.pid, "updated_at": time.time()})
            write_heartbeat(running.folder, taken)
            assert stream_status(deployment.state, ID).state is StreamState.FAILED
            assert stop_driver(deployment.state, ID) is Ending.NOT_RUNNING
            assert start_of(stranger.pid) is not None
        finally:
            stranger.kill()


def test_an_unreadable_heartbeat_is_named_with_the_remedy(state: Path) -> None:
    folder = state / ID
    folder.mkdir(parents=True)
    (folder / "heartbeat.json").write_text("{")
    with pytest.raises(GlassflowError, match=r"heartbeat.json: cannot be read; .*remove it"):
        stream_status(state, ID)
    (folder / "heartbeat.json").unlink()


def test_state_is_kept_where_the_environment_says_or_beside_the_user() -> None:
    assert state_folder({"GLASSFLOW_STATE": "/var/streams"}) == Path("/var/streams")
    assert state_folder({}) == Path.cwd() / ".glassflow" / "state"
