"""Writes a driver's heartbeat once a second, from a thread of its own.

A slow batch must not look like a dead driver, and a dead driver must not look alive: the thread goes with the process.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.heartbeat import DriverState, Heartbeat, write_heartbeat
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of

_INTERVAL = 1.0  # seconds; what is shown of a driver is never older


@contextmanager
def write_heartbeats(folder: Path, config: PipelineConfig) -> Iterator["HeartbeatWriter"]:
    """Write a heartbeat every second of the block; the last one says how it ended: stopped, or failed and why."""
    writer = HeartbeatWriter(folder, config)
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
    """Holds the heartbeat of one driver, and the thread that writes it."""

    def __init__(self, folder: Path, config: PipelineConfig) -> None:
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
        )
        self._lock = threading.Lock()
        self._stalled: Callable[[], str] = str
        self._thread = threading.Thread(target=self._loop, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Write the first beat, then one every second."""
        self._write({})
        self._thread.start()

    def say(self, state: DriverState, message: str = "") -> None:
        """Write a beat with another state at once."""
        self._write({"state": state, "message": message})

    def carry(self, progress: dict[str, Any]) -> None:
        """Let every beat from now on carry these fields of the heartbeat."""
        with self._lock:
            self._beat = self._beat.model_copy(update=progress)

    @contextmanager
    def watching(self, stalled: Callable[[], str]) -> Iterator[None]:
        """Let the beats within the block say `STALLED` while there is a reason for it, instead of `RUNNING`."""
        self._stalled = stalled
        try:
            yield
        finally:
            self._stalled = str

    def end(self, state: DriverState, message: str) -> None:
        """Write the last beat."""
        self._stopped.set()
        self._thread.join()
        self._try_to_write({"state": state, "message": message})

    def _loop(self) -> None:
        while not self._stopped.wait(_INTERVAL):
            self._try_to_write({})

    def _try_to_write(self, update: dict[str, Any]) -> None:
        # A full disk shows as silence. It must neither end the thread, which beats again once there is room, nor
        # stand in the place of the failure that ends the driver.
        with suppress(OSError):
            self._write(update)

    def _write(self, update: dict[str, Any]) -> None:
        with self._lock:
            self._beat = self._beat.model_copy(update={"updated_at": time.time(), **update})
            reason = self._stalled() if self._beat.state is DriverState.RUNNING else ""
            beat = self._beat
            if reason:
                beat = beat.model_copy(update={"state": DriverState.STALLED, "message": reason})
            write_heartbeat(self._folder, beat)
