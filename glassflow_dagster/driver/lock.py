"""One driver a pipeline folder: who holds the lock may run the checkpoint.

The lock is the operating system's and goes with the process, however it ends. A driver that was killed leaves its JVM
and its Python workers behind for a moment, or for good when they were stopped (SIGSTOP) before: a worker that wakes up
would send its next block. So the next driver ends them before it does anything else. They are known by a mark in their
environment, which every process has from the one that started it.
"""

import fcntl
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from pydantic import BaseModel, ValidationError

from glassflow_dagster.driver.heartbeat import STALE_AFTER, is_alive, is_fresh, read_heartbeat
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of, started_with

# What the processes of one driver have in their environment.
MARK = "GLASSFLOW_DRIVER"

# Death after SIGKILL waits for nothing but the kernel.
_DEATH_SECONDS = 10.0
_POLL_SECONDS = 0.05


class AlreadyRunning(GlassflowError):
    """Another driver runs this pipeline on this state folder."""


class Holder(BaseModel):
    """Who has the lock, or had it last; a driver that ended well has no mark and no JVM here any more."""

    pid: int
    started: str
    host: str
    mark: str = ""
    jvm: int | None = None
    jvm_started: str | None = None

    def processes(self) -> dict[int, str]:
        """Find the living processes that this driver started: pid -> start."""
        found = started_with(MARK, self.mark) if self.mark else {}
        if self.jvm and self.jvm_started and start_of(self.jvm) == self.jvm_started:
            found[self.jvm] = self.jvm_started
        return found

    def remains(self) -> dict[int, str]:
        """Find those that outlive the driver; none while it lives itself: then the lock is a copy of its own."""
        return {} if start_of(self.pid) == self.started else self.processes()


class PipelineLock:
    """Held for as long as a driver lives: `with PipelineLock(folder) as lock`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "lock"
        self._handle: TextIO | None = None
        self._mark = str(uuid.uuid4())

    def __enter__(self) -> Self:
        """Take the lock, and end what the last driver left behind; raises `AlreadyRunning` when another has it."""
        try:
            handle = self._file.open("a+", encoding="utf-8")
        except OSError as error:
            raise _unusable(self._file, error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise AlreadyRunning(_why_refused(self._file.parent)) from None
        except OSError as error:
            handle.close()
            raise _unusable(self._file, error) from None
        self._handle = handle
        try:
            end_remains(self._file.parent)
            self._write(self._holder(mark=self._mark))
        except BaseException:
            handle.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back; a driver that ended well has stopped its query, so nothing of it is in the way."""
        if self._handle:
            if error is None:
                self._write(self._holder())
            self._handle.close()

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Let the processes that start within, and all that they start, be known as this driver's."""
        before = os.environ.get(MARK)
        os.environ[MARK] = self._mark
        try:
            yield
        finally:
            # This process may start others that are nobody's, and that must outlive it.
            os.environ.pop(MARK)
            if before is not None:
                os.environ[MARK] = before

    def end_started(self) -> None:
        """Kill what was started as this driver's, and return when all of it is dead."""
        _end(lambda: started_with(MARK, self._mark))

    def remember_jvm(self, pid: int) -> None:
        """Note the JVM of this driver, for the driver that comes after a crash."""
        self._write(self._holder(mark=self._mark, jvm=pid, jvm_started=start_of(pid)))

    @staticmethod
    def _holder(mark: str = "", jvm: int | None = None, jvm_started: str | None = None) -> Holder:
        pid = os.getpid()
        host = socket.gethostname()
        return Holder(pid=pid, started=start_of(pid) or "", host=host, mark=mark, jvm=jvm, jvm_started=jvm_started)

    def _write(self, holder: Holder) -> None:
        assert self._handle
        try:
            self._handle.seek(0)
            self._handle.truncate()
            self._handle.write(holder.model_dump_json())
            self._handle.flush()
        except OSError as error:
            raise _unusable(self._file, error) from None


def end_remains(folder: Path) -> None:
    """Kill what the driver that last held the lock has started, and return when all of it is dead.

    To be called when that driver itself is dead. Raises `GlassflowError` when something does not die.
    """
    if holder := _holder(folder):
        _end(holder.remains)


def _end(find: Callable[[], dict[int, str]]) -> None:
    """Kill what is found, until nothing is."""
    deadline = time.monotonic() + _DEATH_SECONDS
    # Again and again: what lives may start others until it is dead itself.
    while remains := find():
        if time.monotonic() > deadline:
            raise GlassflowError(
                f"pid {min(remains)}, which a driver has started, does not die even by SIGKILL; it belongs to another "
                "user, or waits for a disk or another device, look there"
            )
        for pid in remains:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _holder(folder: Path) -> Holder | None:
    try:
        return Holder.model_validate_json((folder / "lock").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValidationError, UnicodeDecodeError):
        # Cut off by a crash in the moment of writing: the JVM was not up yet.
        return None


def _why_refused(folder: Path) -> str:
    name, holder = folder.name, _holder(folder)
    who = f"pid {holder.pid}" if holder else "pid unknown"
    if holder and holder.host != socket.gethostname():
        return (
            f"{name} is running already on host {holder.host} ({who} there, state in {folder}); "
            f"stop it there with: glassflow-dagster stop {name}"
        )
    with suppress(OSError, ValueError):
        beat = read_heartbeat(folder)
        if beat and is_alive(beat) and not is_fresh(beat):
            return (
                f"{name} is running already (state in {folder}), but its driver, {who}, has given no sign of life for "
                f"{time.time() - beat.updated_at:.0f} s (more than {STALE_AFTER:.0f} s): it was stopped (SIGSTOP), or "
                "hangs; end it and go on here with --take-over"
            )
    return (
        f"{name} is running already ({who}, state in {folder}); stop it with: glassflow-dagster stop {name} "
        f"--state {folder.parent}, or end it and go on here with --take-over"
    )


def _unusable(file: Path, error: OSError) -> GlassflowError:
    return GlassflowError(
        f"{file}: cannot be written or locked ({error.strerror}); make room or grant the right, or name another "
        "folder with --state DIR"
    )
