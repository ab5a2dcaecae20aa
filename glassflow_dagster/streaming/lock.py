"""One driver a pipeline folder: who holds the lock may run the checkpoint.

The lock is the operating system's and goes with the process, however it ends. A driver that was killed leaves its
JVM behind for a moment, which may still be writing: the next driver waits for its death, and sees to it.
"""

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.process import start_of

# A JVM whose Python driver is gone ends by itself within a second or two; past this it hangs.
_JVM_DEATH_SECONDS = 10.0


class AlreadyRunning(GlassflowError):  # noqa: N818 - named for what is the case
    """Another driver runs this pipeline on this state folder."""


class PipelineLock:
    """Held for as long as a driver lives: `with PipelineLock(folder) as lock`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "lock"
        self._handle: TextIO | None = None

    def __enter__(self) -> Self:
        """Take the lock; raises `AlreadyRunning` when another driver has it."""
        handle = self._file.open("a+", encoding="utf-8")
        handle.seek(0)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(handle)
            handle.close()
            raise AlreadyRunning(
                f"{self._file.parent.name} is running already (pid {holder.get('pid', 'unknown')}, state in "
                f"{self._file.parent}); stop it with: glassflow-dagster stop {self._file.parent.name}"
            ) from None
        previous = _read(handle)
        _wait_for_death(previous.get("jvm"), previous.get("jvm_started"))
        self._handle = handle
        self._write({"pid": os.getpid()})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back; a driver that ended well has stopped its query, so nobody has to wait for its JVM."""
        if self._handle:
            if error is None:
                self._write({"pid": os.getpid()})
            self._handle.close()

    def remember_jvm(self, pid: int) -> None:
        """Note the JVM of this driver, for the driver that comes after a crash."""
        self._write({"pid": os.getpid(), "jvm": pid, "jvm_started": start_of(pid)})

    def _write(self, content: dict[str, object]) -> None:
        assert self._handle  # noqa: S101 - only called while the lock is held
        self._handle.seek(0)
        self._handle.truncate()
        json.dump(content, self._handle)
        self._handle.flush()


def _read(handle: TextIO) -> dict[str, Any]:
    text = handle.read()
    try:
        return dict(json.loads(text)) if text else {}
    except ValueError:
        # Cut off by a crash in the moment of writing: the JVM was not up yet.
        return {}


def _wait_for_death(pid: int | None, started: str | None) -> None:
    if pid is None or started is None:
        return
    deadline = time.monotonic() + _JVM_DEATH_SECONDS
    while start_of(pid) == started:
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            deadline += _JVM_DEATH_SECONDS
        time.sleep(0.1)
