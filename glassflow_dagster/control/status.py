"""The status of a stream on this host: by the heartbeat of its driver, and by the process table.

A heartbeat is checked by process id and start time, as another process may have got the id since.
"""

import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from glassflow_dagster.control.heartbeat import (
    STALE_AFTER,
    DriverState,
    Heartbeat,
    is_alive,
    is_fresh,
    pipeline_folder,
    read_heartbeat,
)
from glassflow_dagster.control.launch_lock import is_launching
from glassflow_dagster.control.log_file import tail
from glassflow_dagster.control.wanted import is_wanted
from glassflow_dagster.errors import GlassflowError


class StreamState(StrEnum):
    """The state of a stream, judged from its heartbeat and the process table."""

    RUNNING = "RUNNING"
    STARTING = "STARTING"
    WAITING = "WAITING"  # for its topic to be created
    STALLED = "STALLED"  # its heartbeat is fresh, but records wait and no batch is written
    STALE = "STALE"  # the process runs but has stopped writing its heartbeat
    FAILED = "FAILED"  # it reported a failure, or died without an error message
    STOPPED = "STOPPED"  # on request, or never started


# The states of a driver that works, or is about to.
UP = frozenset({StreamState.RUNNING, StreamState.STARTING, StreamState.WAITING})


@dataclass(frozen=True)
class StreamStatus:
    """The status of a stream: its state, a message for people, and the driver's last heartbeat.

    wanted: whether the stream is meant to run, so that a driver that has ended is started again.
    host: where its driver runs, if that is another host; folder is there, too.
    log_place: where its log is, if that is no file of a host.
    """

    pipeline_id: str
    state: StreamState
    message: str
    heartbeat: Heartbeat | None
    folder: Path
    wanted: bool
    host: str = ""
    log_place: str = ""

    @property
    def log(self) -> Path:
        """The file that the output of a driver on this host goes to."""
        return self.folder / "driver.log"

    @property
    def log_shown(self) -> str:
        """Where the driver's log is, for people."""
        return self.log_place or str(self.log)


def stream_status(state: Path, pipeline_id: str) -> StreamStatus:
    """Return a stream's status, from heartbeat and process table; STARTING where a driver is about to be launched.

    Raises `GlassflowError` where they cannot be read.
    """
    return with_launch(driver_status(state, pipeline_id))


def with_launch(found: StreamStatus) -> StreamStatus:
    """Return a status; STARTING for that of a stream whose driver is being launched here, and has no heartbeat yet.

    Without it a stream that somebody starts or restarts would look as if it had stopped.
    """
    if found.state in UP or not is_launching(found.folder):
        return found
    return replace(found, state=StreamState.STARTING, message="a driver is being started")


def read_log(state: Path, pipeline_id: str, lines: int) -> str:
    """Return the last lines of a driver's log; empty where there is none."""
    return tail(driver_status(state, pipeline_id).log, lines=lines)


def driver_status(state: Path, pipeline_id: str) -> StreamStatus:
    """Return a stream's status by its last driver alone, whether another one is being launched or not."""
    folder = pipeline_folder(state, pipeline_id)
    heartbeat = heartbeat_of(folder)
    stream_state, message = _state_of(heartbeat)
    return StreamStatus(pipeline_id, stream_state, message, heartbeat, folder, wanted=is_wanted(folder))


def heartbeat_of(folder: Path) -> Heartbeat | None:
    """Read a pipeline's heartbeat, None where there is none; raise `GlassflowError` for a file that cannot be read."""
    try:
        return read_heartbeat(folder)
    except (OSError, ValueError):
        raise GlassflowError(
            f"{folder / 'heartbeat.json'}: cannot be read; when no driver of another version or user runs, remove it"
        ) from None


def _state_of(heartbeat: Heartbeat | None) -> tuple[StreamState, str]:
    """Return the stream's state and a message for people, from the driver's last heartbeat and the process table.

    The first that applies: STOPPED (or never started), FAILED by its own report, FAILED as its process is gone, STALE
    as it writes no heartbeat, else the state that the driver reports.
    """
    if heartbeat is None:
        return StreamState.STOPPED, "never started here"
    if heartbeat.state is DriverState.STOPPED:
        return StreamState.STOPPED, heartbeat.message or "stopped normally"
    if heartbeat.state is DriverState.FAILED:
        return StreamState.FAILED, heartbeat.message or "the driver failed without an error message"
    if not is_alive(heartbeat):
        return StreamState.FAILED, (
            f"driver process {heartbeat.pid} died without an error message; no data is lost; "
            "the next start repeats the open batch"
        )
    if not is_fresh(heartbeat):
        silence = time.time() - heartbeat.updated_at
        return StreamState.STALE, f"no heartbeat for {silence:.0f} s (more than {STALE_AFTER:.0f} s)"
    return StreamState(heartbeat.state.value), heartbeat.message
