"""Start the driver of a pipeline, a process of its own on this host.

The driver is detached (its own session, no terminal, its output in `driver.log`), so it outlives the process that
launched it: a Dagster run, `dagster dev`, a shell.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, is_alive
from glassflow_dagster.control.launch_lock import launching
from glassflow_dagster.control.log import failure_in
from glassflow_dagster.control.log_file import rotate_if_full, tail
from glassflow_dagster.control.status import UP, StreamState, StreamStatus, driver_status, heartbeat_of
from glassflow_dagster.control.stop import POLL, STOP_TIMEOUT, end_driver, take_over
from glassflow_dagster.control.wanted import want
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of


class Action(StrEnum):
    """What `ensure_driver` did: nothing but a check, or which kind of start."""

    LAUNCHED = "launched"
    HEALTH_CHECKED = "health_checked"
    RESTARTED = "restarted"
    REDEPLOYED = "redeployed"


class LaunchFailed(GlassflowError):
    """A driver did not start: its own reason, and the end of its log (`tail`) for callers that can show several lines.

    A driver that ends before its first heartbeat (another one holds the lock, the definition cannot be read) has
    written the reason to its log only.
    """

    def __init__(self, pipeline_id: str, reason: str, log: Path | str, tail: str) -> None:
        self.log = log
        self.tail = tail
        last_line = tail.rpartition("\n")[2]
        # Not only in the last line: another driver, which runs, may write to the same log.
        failures = [failure for line in tail.splitlines() if (failure := failure_in(line))]
        why = reason or (failures or [last_line])[-1] or "the driver ended without an error message"
        super().__init__(f"{pipeline_id}: the stream did not start: {why}; its log is {log}")


def launch_driver(deployment: Deployment, report: Callable[[str], None] = lambda _: None) -> StreamStatus:
    """Start a detached driver, wait until it runs or waits for its topic, and return the stream's status.

    Raises `LaunchFailed` when the driver ends or is not up in time; none of its processes is left running. The stream
    counts as wanted from now on even then, so that the sensor tries again.
    """
    with launching(deployment.folder):
        return _launch(deployment, report)


def _launch(deployment: Deployment, report: Callable[[str], None]) -> StreamStatus:
    """Do what `launch_driver` does, while the lock is held."""
    pipeline_id, folder = deployment.config.pipeline_id, deployment.folder
    log_file = folder / "driver.log"
    try:
        want(folder)
        # Also for a driver that dies before it can rotate the log itself, at each of its starts.
        rotate_if_full(log_file)
        with log_file.open("ab") as log:
            log_start = os.fstat(log.fileno())
            process = subprocess.Popen(
                [*deployment.command, "--log-file", str(log_file.absolute())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_driver_environment(os.environ), **deployment.environment},
                start_new_session=True,
            )
    except OSError as error:
        raise GlassflowError(
            f"{folder}: cannot be written ({error.strerror}); choose another folder for state"
        ) from None
    _write_stdin(process, deployment.stdin)
    report(f"{pipeline_id}: started the driver (pid {process.pid}); its log is {log_file}")
    failure = _await_up(folder, process.pid, lambda: process.poll() is None, deployment.timeout, report)
    if failure is not None:
        end_driver(folder, process.pid, start_of(process.pid), STOP_TIMEOUT)
        raise LaunchFailed(pipeline_id, failure, log_file, tail(log_file, log_start))
    return driver_status(deployment.state, pipeline_id)


def restart_driver(deployment: Deployment, report: Callable[[str], None] = lambda _: None) -> StreamStatus:
    """Stop the driver, if one runs, and launch another on the same checkpoint; return the stream's status."""
    with launching(deployment.folder):
        return _restart(deployment, report)


def _restart(deployment: Deployment, report: Callable[[str], None]) -> StreamStatus:
    """Do what `restart_driver` does, while the lock is held."""
    take_over(deployment.state, deployment.config.pipeline_id, report)
    return _launch(deployment, report)


def ensure_driver(
    deployment: Deployment, report: Callable[[str], None] = lambda _: None
) -> tuple[StreamStatus, Action]:
    """Make sure that a healthy driver runs the current definition; return the stream's status and what was done.

    A healthy driver is left alone. One with another fingerprint (the definition was edited), and one that is dead,
    failed, stalled or stale, is replaced by a driver on the same checkpoint. Waits for a launch that is under way.
    Raises `LaunchFailed`.
    """
    with launching(deployment.folder):
        current = driver_status(deployment.state, deployment.config.pipeline_id)
        action = _action_for(current, deployment.config)
        if action is Action.HEALTH_CHECKED:
            return _wait_if_starting(current, deployment, report), action
        return _restart(deployment, report), action


def _action_for(current: StreamStatus, config: PipelineConfig) -> Action:
    """Return what a stream in this state needs, so that a healthy driver runs this definition.

    LAUNCHED where it is stopped, RESTARTED where its driver is not healthy, REDEPLOYED where that runs another
    definition, else HEALTH_CHECKED.
    """
    if current.state is StreamState.STOPPED or current.heartbeat is None:
        return Action.LAUNCHED
    if current.state not in UP:
        return Action.RESTARTED
    return Action.HEALTH_CHECKED if current.heartbeat.fingerprint == config.fingerprint else Action.REDEPLOYED


def _wait_if_starting(current: StreamStatus, deployment: Deployment, report: Callable[[str], None]) -> StreamStatus:
    """Wait until a driver that another process launched is up, if it is still starting; return the stream's status.

    Raises `LaunchFailed` when it ends, or is not up in time.
    """
    heartbeat = current.heartbeat
    if current.state is not StreamState.STARTING or heartbeat is None:
        return current
    failure = _await_up(current.folder, heartbeat.pid, lambda: is_alive(heartbeat), deployment.timeout, report)
    if failure is not None:
        raise LaunchFailed(current.pipeline_id, failure, current.log, tail(current.log))
    return driver_status(deployment.state, current.pipeline_id)


def _await_up(
    folder: Path, pid: int, alive: Callable[[], bool], timeout: float, report: Callable[[str], None]
) -> str | None:
    """Wait until the driver `pid` runs or waits for its topic; report the messages of its heartbeat meanwhile.

    Return None when it is up, else the reason why it is not: empty where the driver ended without one.
    """
    deadline = time.monotonic() + timeout
    message = ""
    while True:
        is_running = alive()  # before the heartbeat is read: a driver writes its last one before it ends
        heartbeat = heartbeat_of(folder)
        # The last heartbeat may still be that of an earlier driver.
        own = heartbeat if heartbeat and heartbeat.pid == pid else None
        if own and own.state in (DriverState.RUNNING, DriverState.WAITING) and is_running:
            return None
        if own and own.message and own.message != message:
            message = own.message
            report(message)
        if not is_running or (own and own.state in (DriverState.FAILED, DriverState.STOPPED)):
            return _why_ended(own)
        if time.monotonic() > deadline:
            return f"not up after {timeout:.0f} s" + (f" ({message})" if message else "")
        time.sleep(POLL)


def _write_stdin(process: "subprocess.Popen[bytes]", content: bytes) -> None:
    """Write a driver's standard input and close it; a driver that has ended reads none, and reports why itself."""
    assert process.stdin
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(content)


def _why_ended(heartbeat: Heartbeat | None) -> str:
    """Return the reason in the last heartbeat of a driver that ended while it started; empty where there is none."""
    if heartbeat and heartbeat.state is DriverState.STOPPED:
        return "it was stopped while it started"
    return heartbeat.message if heartbeat else ""


def _driver_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a driver: without the run and instance of the Dagster process that launches it."""
    return {name: value for name, value in environment.items() if not name.startswith("DAGSTER_")}
