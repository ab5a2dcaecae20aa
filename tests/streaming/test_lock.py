"""One driver a folder; what a killed one leaves behind is dead before the next one starts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassflow_dagster.local.process import start_of
from glassflow_dagster.streaming import lock
from glassflow_dagster.streaming.lock import AlreadyRunning, PipelineLock

HOLD = """
import sys
from pathlib import Path
from glassflow_dagster.streaming.lock import PipelineLock
with PipelineLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that stands for a JVM whose driver was killed."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_a_second_driver_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning, match=rf"is running already \(pid {first.pid}, .*glassflow-dagster stop"):
            PipelineLock(tmp_path).__enter__()
        first.kill()
    with PipelineLock(tmp_path):
        pass


def test_a_jvm_that_outlives_its_driver_is_ended(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_JVM_DEATH_SECONDS", 0.3)
    killed = PipelineLock(tmp_path)
    killed.__enter__().remember_jvm(sleeper.pid)
    killed.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    with PipelineLock(tmp_path):
        assert start_of(sleeper.pid) is None


def test_the_jvm_of_a_driver_that_ended_well_may_serve_the_next_one(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_JVM_DEATH_SECONDS", 0.0)
    for _ in range(2):
        with PipelineLock(tmp_path) as held:
            held.remember_jvm(sleeper.pid)
    assert sleeper.poll() is None


def test_a_process_that_took_a_dead_jvms_pid_is_left_alone(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    started = start_of(sleeper.pid)
    assert started is not None
    (tmp_path / "lock").write_text(json.dumps({"pid": 1, "jvm": sleeper.pid, "jvm_started": started + "1"}))
    with PipelineLock(tmp_path):
        assert sleeper.poll() is None


def test_a_lock_file_that_was_cut_off_by_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": 1')
    with PipelineLock(tmp_path):
        pass
