"""The lock of a pipeline's folder: only the driver that holds it may use the checkpoint.

It is a lock of the operating system (flock), which ends with the process, however that ends. A driver that was killed
leaves its JVM and its Python workers behind for a moment, or for good when they were stopped (SIGSTOP) before: a worker
that is continued would send its next block. So the next driver kills these processes first. It finds them by an
environment variable, the mark, which every process inherits from the one that started it.
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

from glassflow_dagster.control.heartbeat import STALE_AFTER, is_alive, is_fresh, read_heartbeat
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.environment import variables
from glassflow_dagster.runtime.process import start_of, started_with

# The environment variable that marks the processes which one driver has started.
MARK = "GLASSFLOW_DRIVER"

# After SIGKILL only the kernel can delay the end of a process.
DEATH_SECONDS = 10.0
_POLL_SECONDS = 0.05


class AlreadyRunning(GlassflowError):
    """Another driver runs this pipeline on this state folder: stop it, or take it over (`--take-over`)."""


class Holder(BaseModel):
    """The driver that has the lock or had it last, as it is written in the lock file.

    mark: the value of `MARK` in the environment of its processes.
    jvm: the process id of Spark's JVM.
    pool: the pool whose JVM it uses instead.
    started, jvm_started: when these processes started, which tells a process from a later one with the same id.
    All are removed when the driver ends without an error.
    """

    pid: int
    started: str
    host: str
    mark: str = ""
    jvm: int | None = None
    jvm_started: str | None = None
    pool: str = ""

    def processes(self) -> dict[int, str]:
        """Return the processes that this driver started and that still run: process id -> start time."""
        running = started_with(MARK, self.mark) if self.mark else {}
        # The JVM is also found by its id, unless a later process has that by now.
        if self.jvm and self.jvm_started and start_of(self.jvm) == self.jvm_started:
            running[self.jvm] = self.jvm_started
        return running

    def remains(self) -> dict[int, str]:
        """Return the processes that have outlived the driver: process id -> start time.

        Empty while the driver itself runs: whoever got the lock then holds that of a copied folder, and must kill
        nothing of the original's.
        """
        return {} if start_of(self.pid) == self.started else self.processes()


class PipelineLock:
    """The lock that a driver holds while it runs: `with PipelineLock(folder) as lock`. folder: the pipeline's."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "lock"
        # The open file while the lock is held.
        self._handle: TextIO | None = None
        # Identifies the processes of this driver: the value of `MARK` in their environment, and in the lock file.
        self._mark = str(uuid.uuid4())
        # The pool of the driver that had the lock before, if that has not ended in good order.
        self.last_pool = ""

    def __enter__(self) -> Self:
        """Acquire the lock, and kill what the last driver left behind; raise `AlreadyRunning` if another one has it."""
        try:
            handle = self._file.open("a+", encoding="utf-8")
        except OSError as error:
            raise _unusable(self._file, error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise AlreadyRunning(_describe_holder(self._file.parent)) from None
        except OSError as error:
            handle.close()
            raise _unusable(self._file, error) from None
        self._handle = handle
        try:
            end_remains(self._file.parent)
            last = _read_holder(self._file.parent)
            self.last_pool = last.pool if last else ""
            # Its pool is kept until this driver has seen to it.
            self._write(self._holder(mark=self._mark, pool=self.last_pool))
        except BaseException:
            handle.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock; after a run without an error, first empty the lock file's entry of processes to kill.

        The entry (`Holder.mark` and `Holder.jvm`) is for the next driver, and no process of this one is left.
        """
        if self._handle:
            if error is None:
                self._write(self._holder())
            self._handle.close()

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Mark the processes that start while the block runs, and all that they start, as this driver's."""
        # Not for good: processes that this one starts otherwise (a Dagster run, for instance) may outlive the driver.
        with variables({MARK: self._mark}):
            yield

    def end_started(self) -> None:
        """Kill the processes that are marked as this driver's, and return when all of them have ended."""
        _kill_all(lambda: started_with(MARK, self._mark))

    def remember_jvm(self, pid: int) -> None:
        """Write the JVM's process id to the lock file, so that the next driver can kill it after a crash."""
        self._write(self._holder(mark=self._mark, jvm=pid, jvm_started=start_of(pid)))

    def remember_pool(self, name: str) -> None:
        """Write the pool to the lock file, so that the next driver can wait for it after a crash."""
        self._write(self._holder(mark=self._mark, pool=name))

    @staticmethod
    def _holder(mark: str = "", jvm: int | None = None, jvm_started: str | None = None, pool: str = "") -> Holder:
        """Return this process as the lock's holder."""
        pid = os.getpid()
        host = socket.gethostname()
        return Holder(
            pid=pid, started=start_of(pid) or "", host=host, mark=mark, jvm=jvm, jvm_started=jvm_started, pool=pool
        )

    def _write(self, holder: Holder) -> None:
        """Replace the content of the lock file, which this driver holds."""
        assert self._handle
        try:
            self._handle.seek(0)
            self._handle.truncate()
            self._handle.write(holder.model_dump_json())
            self._handle.flush()
        except OSError as error:
            raise _unusable(self._file, error) from None


def end_remains(folder: Path) -> None:
    """Kill the processes left behind by the driver that last held the lock; return when all of them have ended.

    Call it when that driver itself has ended. Raises `GlassflowError` when a process does not end.
    """
    if holder := _read_holder(folder):
        _kill_all(holder.remains)


def _kill_all(find: Callable[[], dict[int, str]]) -> None:
    """Kill the processes that `find` returns (process id -> start time), until it returns none.

    Raises `GlassflowError` when that takes longer than `DEATH_SECONDS`.
    """
    deadline = time.monotonic() + DEATH_SECONDS
    # Searched repeatedly: until it has ended, each of them may start more.
    while remains := find():
        if time.monotonic() > deadline:
            raise GlassflowError(
                f"pid {min(remains)}, which a driver has started, does not end even after SIGKILL; it belongs to "
                "another user, or waits for a disk or another device; check these"
            )
        for pid in remains:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _read_holder(folder: Path) -> Holder | None:
    """Read the lock file of a pipeline's folder; return None when there is none, or a crash has cut it off."""
    try:
        return Holder.model_validate_json((folder / "lock").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValidationError, UnicodeDecodeError):
        # It is first written before the JVM starts, so a crash while writing it has left no JVM behind.
        return None


def _describe_holder(folder: Path) -> str:
    """Return the message for a pipeline that another driver runs: which one it is, and how to stop it.

    Cases: it runs on another host; it runs here, but its heartbeat is too old; it runs here.
    """
    name, holder = folder.name, _read_holder(folder)
    who = f"pid {holder.pid}" if holder else "pid unknown"
    if holder and holder.host != socket.gethostname():
        return (
            f"{name} is running already on host {holder.host} ({who} there, state in {folder}); "
            f"stop it there with: glassflow-dagster stop {name}"
        )
    # Without a readable heartbeat it counts as one that runs.
    with suppress(OSError, ValueError):
        beat = read_heartbeat(folder)
        if beat and is_alive(beat) and not is_fresh(beat):
            return (
                f"{name} is running already (state in {folder}), but its driver, {who}, has sent no heartbeat for "
                f"{time.time() - beat.updated_at:.0f} s (more than {STALE_AFTER:.0f} s): it was stopped (SIGSTOP), or "
                "hangs; end it and continue here with --take-over"
            )
    return (
        f"{name} is running already ({who}, state in {folder}); stop it with: glassflow-dagster stop {name} --state "
        f"{folder.parent}, or end it and continue here with --take-over"
    )


def _unusable(file: Path, error: OSError) -> GlassflowError:
    """Return the error for a lock file that cannot be written or locked."""
    return GlassflowError(
        f"{file}: cannot be written or locked ({error.strerror}); free disk space or grant write permission, or name "
        "another folder with --state DIR"
    )
