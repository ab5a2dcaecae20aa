"""Stop the driver of a pipeline on this host: after its batch, or at once with all processes that it has started.

Whether a stream is *meant* to run is kept in the file `wanted`: a launch creates it, a stop removes it. So a driver
that ended because the machine was shut down is started again, and one that someone stopped is not.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from glassflow_dagster.control.heartbeat import DriverState, is_alive, pipeline_folder, write_heartbeat
from glassflow_dagster.control.launch_lock import is_launching
from glassflow_dagster.control.lock import end_remains
from glassflow_dagster.control.status import UP, StreamState, StreamStatus, driver_status
from glassflow_dagster.control.wanted import unwant
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of

# A batch takes seconds; a driver that needs a minute waits for a server that does not answer.
STOP_TIMEOUT = 60.0  # seconds
# After SIGKILL only the kernel can delay the end of a process.
KILL_TIMEOUT = 10.0  # seconds
POLL = 0.1  # seconds
# The states of a driver that runs but makes no progress: waiting for it to finish its batch is useless.
_STUCK = frozenset({StreamState.STALLED, StreamState.STALE})


class Ending(StrEnum):
    """The result of stopping a driver."""

    STOPPED = "stopped"
    KILLED = "killed"
    NOT_RUNNING = "not_running"


def stop_driver(state: Path, pipeline_id: str, timeout: float = STOP_TIMEOUT) -> Ending:
    """Ask a driver to finish its batch and end; kill it when it has not after `timeout` seconds.

    The stream is not wanted any more. A killed driver's batch is repeated at the next start; no row is lost or
    duplicated.
    """
    folder, ended = pipeline_folder(state, pipeline_id), Ending.NOT_RUNNING
    deadline = time.monotonic() + timeout
    while True:
        unwant(folder)
        ending = _halt(driver_status(state, pipeline_id), timeout)
        ended = ending if ending is not Ending.NOT_RUNNING else ended
        # A driver that is being launched is found by its first heartbeat; its launch ends with it.
        if not is_launching(folder) or time.monotonic() > deadline:
            return ended
        time.sleep(POLL)


def kill_driver(state: Path, pipeline_id: str) -> Ending:
    """End a driver at once, with all processes that it has started; the next start repeats its batch.

    Whether the stream is wanted does not change.
    """
    return _halt(driver_status(state, pipeline_id), 0.0)


def take_over(state: Path, pipeline_id: str, report: Callable[[str], None] = lambda _: None) -> None:
    """Stop the driver that runs a pipeline here, if one runs, so that another can continue from its checkpoint.

    A driver that makes progress finishes its batch. One that is stalled or stale (as when it or its JVM was stopped by
    SIGSTOP) is killed at once with all processes that it started. Whether the stream is wanted does not change.
    """
    current = driver_status(state, pipeline_id)
    if current.heartbeat is None or not is_alive(current.heartbeat):
        return
    why = "" if current.state in UP else f", which is {current.state.value}: {current.message}"
    report(f"{pipeline_id}: ending the driver that runs it (pid {current.heartbeat.pid}){why}")
    _halt(current, 0.0 if current.state in _STUCK else STOP_TIMEOUT)


def _halt(current: StreamStatus, timeout: float) -> Ending:
    """Stop a stream's driver, by force after `timeout` seconds; write the heartbeat that a killed one cannot write."""
    heartbeat = current.heartbeat
    if heartbeat is None or not is_alive(heartbeat):
        return Ending.NOT_RUNNING
    ending = end_driver(current.folder, heartbeat.pid, heartbeat.process_started, timeout)
    if ending is Ending.KILLED:
        text = f"did not finish its batch within {timeout:.0f} s and was killed; the next start repeats the batch"
        write_heartbeat(current.folder, heartbeat.model_copy(update={"state": DriverState.STOPPED, "message": text}))
    return ending


def end_driver(folder: Path, pid: int, started: str | None, timeout: float) -> Ending:
    """Stop a driver by SIGTERM, after `timeout` seconds by SIGKILL, with all processes that it has started.

    started: the process's start time; a process `pid` with another one is not the driver.
    """
    if started is None or start_of(pid) != started:
        return Ending.NOT_RUNNING
    # Only the Python process: Spark's JVM is in the same process group, and must run until the query has stopped.
    _signal(pid, signal.SIGTERM)
    if _has_ended(pid, started, timeout):
        return Ending.STOPPED
    # Now the whole group, so that no JVM is left; but only a group that the driver leads: another may be a shell's.
    if _group(pid) == pid:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    else:
        _signal(pid, signal.SIGKILL)
    if not _has_ended(pid, started, KILL_TIMEOUT):
        raise GlassflowError(
            f"pid {pid}: does not end even after SIGKILL; it waits for a disk or another device; check that device"
        )
    # Spark's Python workers are in another group; one that was stopped would send its block once it is continued.
    end_remains(folder)
    return Ending.KILLED


def _group(pid: int) -> int | None:
    """Return the process group of a process; None when the process has ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended; raise `GlassflowError` for another user's."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has just ended by itself
    except PermissionError:
        raise GlassflowError(
            f"pid {pid}: belongs to another user; stop the stream as the user that started it"
        ) from None


def _has_ended(pid: int, started: str, timeout: float) -> bool:
    """Wait for the end of a process, for `timeout` seconds at most; return whether it has ended."""
    deadline = time.monotonic() + timeout
    while start_of(pid) == started:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True
