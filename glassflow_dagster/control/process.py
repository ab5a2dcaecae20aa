"""Launches, inspects, stops and restarts the driver of a pipeline, which is a process of its own.

The driver is detached (its own session, no terminal, its output in `driver.log`), so it outlives the process that
launched it: a Dagster run, `dagster dev`, a shell. Its state is read from its heartbeat and checked against the process
table by process id and start time, as another process may have got the id since.

Whether a stream is *meant* to run is kept separately, in the file `wanted`: a launch creates it, a stop removes it. So
a driver that ended because the machine was shut down is started again, and one that someone stopped is not.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
    write_heartbeat,
)
from glassflow_dagster.control.launching import is_launching, launching
from glassflow_dagster.control.lock import end_remains
from glassflow_dagster.control.log import LogFormat, failure_in
from glassflow_dagster.control.log_file import rotate_if_full, tail
from glassflow_dagster.control.sent_definition import FROM_STDIN, SentDefinition
from glassflow_dagster.control.wanted import is_wanted, unwant, want
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.state import STATE, is_url
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of

DRIVER = (sys.executable, "-m", "glassflow_dagster.driver.run")
# Spark needs 10 to 20 s on a loaded machine; the rest is for servers that start at the same time.
LAUNCH_TIMEOUT = 180.0  # seconds
# A batch takes seconds; a driver that needs a minute waits for a server that does not answer.
STOP_TIMEOUT = 60.0  # seconds
# After SIGKILL only the kernel can delay the end of a process.
KILL_TIMEOUT = 10.0  # seconds
POLL = 0.1  # seconds


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
# The states of a driver that runs but makes no progress: waiting for it to finish its batch is useless.
_STUCK = frozenset({StreamState.STALLED, StreamState.STALE})


class Action(StrEnum):
    """What `ensure_running` did: nothing but a check, or which kind of start."""

    LAUNCHED = "launched"
    HEALTH_CHECKED = "health_checked"
    RESTARTED = "restarted"
    REDEPLOYED = "redeployed"


class Ending(StrEnum):
    """The result of stopping a driver."""

    STOPPED = "stopped"
    KILLED = "killed"
    NOT_RUNNING = "not_running"


@dataclass(frozen=True)
class StreamStatus:
    """The status of a stream: its state, a message for people, and the driver's last heartbeat.

    wanted: whether the stream is meant to run, so that a driver that has ended is started again. host: where its driver
    runs, if that is another host; folder is there, too. log_place: where its log is, if that is no file of a host.
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


@dataclass(frozen=True)
class Deployment:
    """A pipeline to run on this host, and how to start its driver.

    state: the folder of all pipelines' state. timeout: the seconds that a launch may take. spark_config: settings of
    the driver's Spark session. environment: variables of the driver besides those of this process. log_format: of the
    driver's messages; None for what the environment says. pool: in place of the definition's; None for that.
    properties_file: further Spark settings, which may be secrets; None for none.
    """

    config: PipelineConfig
    state: Path
    create_table: bool = False
    timeout: float = LAUNCH_TIMEOUT
    spark_config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    log_format: LogFormat | None = None
    pool: str | None = None
    properties_file: Path | None = None

    @property
    def folder(self) -> Path:
        """The pipeline's local folder."""
        return pipeline_folder(self.state, self.config.pipeline_id)

    @property
    def command(self) -> list[str]:
        """The driver's command line."""
        origin = self.config.origin
        definition = str(origin.file.absolute()) if origin.file and origin.is_own_file else FROM_STDIN
        command = [*DRIVER, "--definition", definition, "--state", str(self.state.absolute())]
        command += ["--create-table"] if self.create_table else []
        command += ["--log-format", self.log_format.value] if self.log_format else []
        command += ["--pool", self.pool] if self.pool else []
        command += ["--properties-file", str(self.properties_file)] if self.properties_file else []
        for key, value in self.spark_config.items():
            command += ["--conf", f"{key}={value}"]
        return command

    @property
    def stdin(self) -> bytes:
        """The driver's standard input: a definition that is no file of its own, which may hold secrets; else empty."""
        origin = self.config.origin
        return b"" if origin.is_own_file else SentDefinition.of(self.config).model_dump_json().encode()


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


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the default local folder of state: GLASSFLOW_STATE, else `.glassflow/state` in the working folder.

    A URL in GLASSFLOW_STATE is the store of the checkpoints; working files remain in the default folder.
    """
    named = environment.get(STATE, "")
    return (Path(named) if named and not is_url(named) else Path(".glassflow") / "state").absolute()


def status(state: Path, pipeline_id: str) -> StreamStatus:
    """Return a stream's status, from heartbeat and process table; STARTING where a driver is about to be launched.

    Raises `GlassflowError` where they cannot be read.
    """
    return with_launch(_status(state, pipeline_id))


def with_launch(found: StreamStatus) -> StreamStatus:
    """Return a status; STARTING for that of a stream whose driver is being launched here, and has no heartbeat yet.

    Without it a stream that somebody starts or restarts would look as if it had stopped.
    """
    if found.state in UP or not is_launching(found.folder):
        return found
    return replace(found, state=StreamState.STARTING, message="a driver is being started")


def _status(state: Path, pipeline_id: str) -> StreamStatus:
    """Return a stream's status by its last driver alone, whether another one is being launched or not."""
    folder = pipeline_folder(state, pipeline_id)
    heartbeat = _heartbeat(folder)
    stream_state, message = _state_of(heartbeat)
    return StreamStatus(pipeline_id, stream_state, message, heartbeat, folder, wanted=is_wanted(folder))


def launch(deployment: Deployment, report: Callable[[str], None] = lambda _: None) -> StreamStatus:
    """Start a detached driver, wait until it runs or waits for its topic, and return the stream's status.

    Raises `LaunchFailed` when the driver ends or is not up in time; none of its processes is left running. The stream
    counts as wanted from now on even then, so that the sensor tries again.
    """
    with launching(deployment.folder):
        return _launch(deployment, report)


def _launch(deployment: Deployment, report: Callable[[str], None]) -> StreamStatus:
    """Do what `launch` does, while the lock is held."""
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
        _end(folder, process.pid, start_of(process.pid), STOP_TIMEOUT)
        raise LaunchFailed(pipeline_id, failure, log_file, tail(log_file, log_start))
    return _status(deployment.state, pipeline_id)


def stop(state: Path, pipeline_id: str, timeout: float = STOP_TIMEOUT) -> Ending:
    """Ask a driver to finish its batch and end; kill it when it has not after `timeout` seconds.

    The stream is not wanted any more. A killed driver's batch is repeated at the next start; no row is lost or
    duplicated.
    """
    folder, ended = pipeline_folder(state, pipeline_id), Ending.NOT_RUNNING
    deadline = time.monotonic() + timeout
    while True:
        unwant(folder)
        ending = _halt(_status(state, pipeline_id), timeout)
        ended = ending if ending is not Ending.NOT_RUNNING else ended
        # A driver that is being launched is found by its first heartbeat; its launch ends with it.
        if not is_launching(folder) or time.monotonic() > deadline:
            return ended
        time.sleep(POLL)


def kill(state: Path, pipeline_id: str) -> Ending:
    """End a driver at once, with all processes that it has started; the next start repeats its batch.

    Whether the stream is wanted does not change.
    """
    return _halt(_status(state, pipeline_id), 0.0)


def read_log(state: Path, pipeline_id: str, lines: int) -> str:
    """Return the last lines of a driver's log; empty where there is none."""
    return tail(_status(state, pipeline_id).log, lines=lines)


def restart(deployment: Deployment, report: Callable[[str], None] = lambda _: None) -> StreamStatus:
    """Stop the driver, if one runs, and launch another on the same checkpoint; return the stream's status."""
    with launching(deployment.folder):
        return _restart(deployment, report)


def _restart(deployment: Deployment, report: Callable[[str], None]) -> StreamStatus:
    """Do what `restart` does, while the lock is held."""
    take_over(deployment.state, deployment.config.pipeline_id, report)
    return _launch(deployment, report)


def take_over(state: Path, pipeline_id: str, report: Callable[[str], None] = lambda _: None) -> None:
    """Stop the driver that runs a pipeline here, if one runs, so that another can continue from its checkpoint.

    A driver that makes progress finishes its batch. One that is stalled or stale (as when it or its JVM was stopped by
    SIGSTOP) is killed at once with all processes that it started. Whether the stream is wanted does not change.
    """
    current = _status(state, pipeline_id)
    if current.heartbeat is None or not is_alive(current.heartbeat):
        return
    why = "" if current.state in UP else f", which is {current.state.value}: {current.message}"
    report(f"{pipeline_id}: ending the driver that runs it (pid {current.heartbeat.pid}){why}")
    _halt(current, 0.0 if current.state in _STUCK else STOP_TIMEOUT)


def ensure_running(
    deployment: Deployment, report: Callable[[str], None] = lambda _: None
) -> tuple[StreamStatus, Action]:
    """Make sure that a healthy driver runs the current definition; return the stream's status and what was done.

    A healthy driver is left alone. One with another fingerprint (the definition was edited), and one that is dead,
    failed, stalled or stale, is replaced by a driver on the same checkpoint. Waits for a launch that is under way.
    Raises `LaunchFailed`.
    """
    with launching(deployment.folder):
        current = _status(deployment.state, deployment.config.pipeline_id)
        action = _action_for(current, deployment.config)
        if action is Action.HEALTH_CHECKED:
            return _wait_if_starting(current, deployment, report), action
        return _restart(deployment, report), action


def _halt(current: StreamStatus, timeout: float) -> Ending:
    """Stop a stream's driver, by force after `timeout` seconds; write the heartbeat that a killed one cannot write."""
    heartbeat = current.heartbeat
    if heartbeat is None or not is_alive(heartbeat):
        return Ending.NOT_RUNNING
    ending = _end(current.folder, heartbeat.pid, heartbeat.process_started, timeout)
    if ending is Ending.KILLED:
        text = f"did not finish its batch within {timeout:.0f} s and was killed; the next start repeats the batch"
        write_heartbeat(current.folder, heartbeat.model_copy(update={"state": DriverState.STOPPED, "message": text}))
    return ending


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
    return _status(deployment.state, current.pipeline_id)


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
        heartbeat = _heartbeat(folder)
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


def _end(folder: Path, pid: int, started: str | None, timeout: float) -> Ending:
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


def _heartbeat(folder: Path) -> Heartbeat | None:
    """Read a pipeline's heartbeat, None where there is none; raise `GlassflowError` for a file that cannot be read."""
    try:
        return read_heartbeat(folder)
    except (OSError, ValueError):
        raise GlassflowError(
            f"{folder / 'heartbeat.json'}: cannot be read; when no driver of another version or user runs, remove it"
        ) from None


def _driver_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a driver: without the run and instance of the Dagster process that launches it."""
    return {name: value for name, value in environment.items() if not name.startswith("DAGSTER_")}
