"""The lock of a state folder: one driver at a time, and no process of a killed driver outlives the next start."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glassflow_dagster.control import lock
from glassflow_dagster.control.heartbeat import STALE_AFTER, DriverState, Heartbeat, write_heartbeat
from glassflow_dagster.control.lock import MARK, AlreadyRunning, Holder, PipelineLock
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of
from tests.support.waiting import DEADLINE

# A driver that holds the lock, and a worker in a process group of its own, as Spark's workers are. The worker ignores
# SIGHUP: Linux sends it to a group with stopped members when their parent dies, and SIGCONT, which wakes them.
HOLD = """
import os, signal, subprocess, sys
from pathlib import Path
from glassflow_dagster.control.lock import PipelineLock
def begin():
    os.setpgrp()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
with PipelineLock(Path(sys.argv[1])) as lock:
    with lock.marking():
        worker = subprocess.Popen(["sleep", "600"], preexec_fn=begin)
    print(worker.pid, flush=True)
    sys.stdin.read()
"""


@contextmanager
def locked(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Let another process hold the lock; yield that process and its worker's pid."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        worker = int(first.stdout.readline())
        try:
            yield first, worker
        finally:
            first.kill()


@pytest.fixture
def orphaned_jvm() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process that stands for the JVM of a killed driver."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def heartbeat_of(pid: int, age: float) -> Heartbeat:
    started = start_of(pid)
    assert started is not None
    return Heartbeat(
        pipeline_id="p", state=DriverState.RUNNING, pid=pid, process_started=started,
        updated_at=time.time() - age, fingerprint="",
    )  # fmt: skip


def dead_holder(jvm: int, started: str | None) -> Holder:
    """Return the lock's entry of a dead driver: no process ever had this pid and start time."""
    return Holder(pid=1, started="never", host="here", jvm=jvm, jvm_started=started)


def test_a_second_driver_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    with locked(tmp_path) as (first, _):
        write_heartbeat(tmp_path, heartbeat_of(first.pid, age=0))
        with pytest.raises(AlreadyRunning) as refused:
            PipelineLock(tmp_path).__enter__()
    assert f"is running already (pid {first.pid}, state in {tmp_path}); stop it with" in str(refused.value)
    assert f"glassflow-dagster stop {tmp_path.name} --state {tmp_path.parent}, or end it" in str(refused.value)
    assert "--take-over" in str(refused.value)


def test_a_driver_that_gives_no_sign_of_life_is_named_as_such(tmp_path: Path) -> None:
    with locked(tmp_path) as (first, _):
        os.kill(first.pid, signal.SIGSTOP)
        write_heartbeat(tmp_path, heartbeat_of(first.pid, age=STALE_AFTER + 15))
        with pytest.raises(AlreadyRunning, match=rf"pid {first.pid}, has sent no heartbeat for 45 s .*--take-over"):
            PipelineLock(tmp_path).__enter__()


def test_a_driver_of_another_host_is_to_be_stopped_there(tmp_path: Path) -> None:
    with locked(tmp_path) as (first, _):
        (tmp_path / "lock").write_text(Holder(pid=first.pid, started="1", host="elsewhere").model_dump_json())
        with pytest.raises(AlreadyRunning, match=rf"on host elsewhere \(pid {first.pid} there.*stop it there"):
            PipelineLock(tmp_path).__enter__()


def test_a_worker_that_was_stopped_before_its_driver_died_never_wakes_up(tmp_path: Path) -> None:
    with locked(tmp_path) as (first, worker):
        os.kill(worker, signal.SIGSTOP)
        first.kill()
        first.wait()
        assert start_of(worker) is not None
        with PipelineLock(tmp_path):
            assert start_of(worker) is None


def test_what_a_driver_starts_beside_its_session_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MARK, raising=False)
    with PipelineLock(tmp_path) as lock:
        with lock.marking():
            assert MARK in os.environ
        assert MARK not in os.environ


def test_a_driver_that_ends_well_leaves_nothing_behind_that_does_not_end_by_itself(tmp_path: Path) -> None:
    """Simulate a JVM whose state stores are active while it ends: each waits for the other."""
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    with PipelineLock(tmp_path) as lock:
        with lock.marking():
            process = subprocess.Popen([sys.executable, "-c", stubborn])
        other = subprocess.Popen(["sleep", "600"])
        try:
            lock.end_started()
            assert process.wait(DEADLINE) == -signal.SIGKILL
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()


def test_a_jvm_that_outlives_its_driver_is_ended(tmp_path: Path, orphaned_jvm: "subprocess.Popen[bytes]") -> None:
    (tmp_path / "lock").write_text(dead_holder(orphaned_jvm.pid, start_of(orphaned_jvm.pid)).model_dump_json())
    with PipelineLock(tmp_path):
        assert start_of(orphaned_jvm.pid) is None


def test_a_copy_of_a_living_drivers_folder_ends_nothing_of_it(tmp_path: Path) -> None:
    for name in ("original", "copy"):
        (tmp_path / name).mkdir()
    with locked(tmp_path / "original") as (_, worker):
        shutil.copy(tmp_path / "original" / "lock", tmp_path / "copy" / "lock")
        with PipelineLock(tmp_path / "copy"):
            assert start_of(worker) is not None


def test_what_does_not_die_is_said(
    tmp_path: Path, orphaned_jvm: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "DEATH_SECONDS", 0.2)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    started = start_of(orphaned_jvm.pid)
    content = dead_holder(orphaned_jvm.pid, started).model_dump_json()
    (tmp_path / "lock").write_text(content)
    with pytest.raises(GlassflowError, match=rf"pid {orphaned_jvm.pid}, which a driver has started, does not end"):
        PipelineLock(tmp_path).__enter__()
    monkeypatch.undo()
    assert (tmp_path / "lock").read_text() == content
    with PipelineLock(tmp_path):
        assert start_of(orphaned_jvm.pid) is None


def test_the_jvm_of_a_driver_that_ended_well_may_serve_the_next_one(
    tmp_path: Path, orphaned_jvm: "subprocess.Popen[bytes]"
) -> None:
    for _ in range(2):
        with PipelineLock(tmp_path) as mine:
            mine.remember_jvm(orphaned_jvm.pid)
    assert orphaned_jvm.poll() is None


def test_a_process_that_took_a_dead_jvms_pid_is_left_alone(
    tmp_path: Path, orphaned_jvm: "subprocess.Popen[bytes]"
) -> None:
    started = start_of(orphaned_jvm.pid)
    assert started is not None
    (tmp_path / "lock").write_text(dead_holder(orphaned_jvm.pid, f"{started}1").model_dump_json())
    with PipelineLock(tmp_path):
        assert orphaned_jvm.poll() is None


def test_a_lock_file_that_was_cut_off_by_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": 1')
    with PipelineLock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
