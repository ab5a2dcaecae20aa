"""Writes a driver's heartbeat once a second, from a separate thread.

A slow batch must not look like a dead driver, and a dead driver must not look alive: the thread goes with the process.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, write_heartbeat
from glassflow_dagster.control.log import LogPosition
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of

INTERVAL = 1.0  # seconds; the state that is shown of a driver is never older


@contextmanager
def write_heartbeats(folder: Path, config: PipelineConfig, submission: str = "") -> Iterator["HeartbeatWriter"]:
    """Write a heartbeat every second while the block runs, and a last one: STOPPED, or FAILED with the reason.

    submission: see `Heartbeat`.
    """
    writer = HeartbeatWriter(folder, config, submission)
    writer.start()
    try:
        yield writer
    except GlassflowError as error:
        writer.end(DriverState.FAILED, str(error))
        raise
    except BaseException as error:
        writer.end(DriverState.FAILED, f"{type(error).__name__}: {error}")
        raise
    writer.end(DriverState.STOPPED, "")


class HeartbeatWriter:
    """The heartbeat of one driver, and the thread that writes it every second."""

    def __init__(self, folder: Path, config: PipelineConfig, submission: str) -> None:
        self._folder = folder
        self._stopped = threading.Event()
        pid = os.getpid()
        self._beat = Heartbeat(
            pipeline_id=config.pipeline_id,
            state=DriverState.STARTING,
            pid=pid,
            process_started=start_of(pid) or "",
            updated_at=time.time(),
            fingerprint=config.fingerprint,
            submission=submission,
            joins=config.join is not None,
        )
        self._lock = threading.Lock()
        self._stall_reason: Callable[[], str] = _no_stall
        self._at_end: Callable[[Heartbeat], None] | None = None
        self._thread = threading.Thread(target=self._loop, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Write the first heartbeat, and start the thread that writes one every second."""
        self._write({})
        self._thread.start()

    def set_state(self, state: DriverState, message: str = "") -> None:
        """Change the driver's state and message, and write a heartbeat at once."""
        self._write({"state": state, "message": message})

    def update(self, progress: dict[str, Any]) -> None:
        """Set fields of the heartbeat; they are in every one that is written from now on."""
        with self._lock:
            self._beat = self._beat.model_copy(update=progress)

    def current(self) -> Heartbeat:
        """Return the heartbeat as it is written now; a stalled driver's is STALLED."""
        with self._lock:
            return self._with_stall()

    def at_end(self, told: Callable[[Heartbeat], None]) -> None:
        """Call a function with the last heartbeat, after it is written."""
        self._at_end = told

    def position(self) -> LogPosition:
        """Return the checkpoint and the last batch that the heartbeat has."""
        beat = self._beat
        return LogPosition(beat.checkpoint_id, beat.batch_id)

    @contextmanager
    def report_stalls(self, stall_reason: Callable[[], str]) -> Iterator[None]:
        """Write `STALLED` instead of `RUNNING` while the block runs and `stall_reason` returns a reason, not ''."""
        self._stall_reason = stall_reason
        try:
            yield
        finally:
            self._stall_reason = _no_stall

    def end(self, state: DriverState, message: str) -> None:
        """Stop the thread and write the last heartbeat."""
        self._stopped.set()
        self._thread.join()
        self._try_to_write({"state": state, "message": message})
        if self._at_end:
            self._at_end(self._beat)

    def _loop(self) -> None:
        """Write a heartbeat every second until `end` is called."""
        while not self._stopped.wait(INTERVAL):
            self._try_to_write({})

    def _try_to_write(self, update: dict[str, Any]) -> None:
        """Write a heartbeat; ignore errors of the disk."""
        # On a full disk the heartbeat just becomes stale. The error must neither end the thread, which writes again
        # once there is room, nor hide the failure that ends the driver.
        with suppress(OSError):
            self._write(update)

    def _write(self, update: dict[str, Any]) -> None:
        """Update fields of the heartbeat and its time, and write it; a stalled driver is written as STALLED."""
        with self._lock:
            self._beat = self._beat.model_copy(update={"updated_at": time.time(), **update})
            write_heartbeat(self._folder, self._with_stall())

    def _with_stall(self) -> Heartbeat:
        """Return the heartbeat, with STALLED for RUNNING where there is a reason; call it with the lock."""
        reason = self._stall_reason() if self._beat.state is DriverState.RUNNING else ""
        return self._beat.model_copy(update={"state": DriverState.STALLED, "message": reason}) if reason else self._beat


def _no_stall() -> str:
    """Return no reason: nothing watches the query's progress, so it does not count as stalled."""
    return ""
