"""A pipeline's driver as a process of its own: launched, asked, stopped, and brought back.

The driver is detached (its own session, no terminal, its output in `driver.log`), so it outlives whoever launched it:
a Dagster run, `dagster dev`, a shell. All that is known of it comes from its heartbeat, checked against the process
table: a pid alone would be believed after another process has taken it.

Whether a stream is *meant* to run is a fact of its own, kept in the file `wanted`: a launch creates it, a stop removes
it. A machine that goes down also ends drivers in good order, and those are to come back; those that someone stopped,
and those that nobody ever launched, are not.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.heartbeat import (
    STALE_AFTER,
    DriverState,
    Heartbeat,
    is_alive,
    is_fresh,
    make_pipeline_folder,
    pipeline_folder,
    read_heartbeat,
    write_heartbeat,
)
from glassflow_dagster.driver.lock import end_remains
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of

DRIVER = (sys.executable, "-m", "glassflow_dagster.driver.run")
# Spark needs 10 to 20 s on a loaded machine; the rest is for servers that are coming up at the same time.
LAUNCH_TIMEOUT = 180.0  # seconds
# A batch is bounded by max_batch_size and takes seconds; a minute is a driver that waits for a dead server.
STOP_TIMEOUT = 60.0  # seconds
# Death after SIGKILL waits for nothing but the kernel.
KILL_TIMEOUT = 10.0  # seconds
POLL = 0.1  # seconds
# A Spark failure with its Java causes; more is read in the log itself.
LOG_TAIL_LINES = 40
LOG_TAIL_BYTES = 64 * 1024


class StreamState(StrEnum):
    """How a stream is, seen from outside."""

    RUNNING = "RUNNING"
    STARTING = "STARTING"
    WAITING = "WAITING"  # for its topic to be created
    STALLED = "STALLED"  # it talks, but records wait and no batch is closed
    STALE = "STALE"  # the process lives but has stopped talking
    FAILED = "FAILED"  # it said so, or died without a word
    STOPPED = "STOPPED"  # in good order, or never started


# The states of a driver that does its work, or is about to.
UP = frozenset({StreamState.RUNNING, StreamState.STARTING, StreamState.WAITING})
# Those of a driver that lives, and that nobody need ask to finish its batch.
_STUCK = frozenset({StreamState.STALLED, StreamState.STALE})


class Action(StrEnum):
    """What was done so that a stream is as it is meant to be."""

    LAUNCHED = "launched"
    HEALTH_CHECKED = "health_checked"
    RESTARTED = "restarted"
    REDEPLOYED = "redeployed"


class Ending(StrEnum):
    """How a stop ended."""

    STOPPED = "stopped"
    KILLED = "killed"
    NOT_RUNNING = "not_running"


@dataclass(frozen=True)
class StreamStatus:
    """How a stream is: its state in a word and in a sentence, and the driver's last account of itself."""

    pipeline_id: str
    state: StreamState
    message: str
    heartbeat: Heartbeat | None
    folder: Path
    wanted: bool

    @property
    def log(self) -> Path:
        """Where the driver's output goes."""
        return self.folder / "driver.log"


@dataclass(frozen=True)
class Deployment:
    """A pipeline that is to run on this host: its definition (file and content), its state, and how to start it.

    `timeout` is how many seconds a launch may take. `spark_config` goes to the driver's session as it is.
    """

    definition: Path
    config: PipelineConfig
    state: Path
    create_table: bool = False
    timeout: float = LAUNCH_TIMEOUT
    spark_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """The driver's command line."""
        command = [*DRIVER, "--definition", str(self.definition.absolute()), "--state", str(self.state.absolute())]
        command += ["--create-table"] if self.create_table else []
        for key, value in self.spark_config.items():
            command += ["--conf", f"{key}={value}"]
        return command


class LaunchFailed(GlassflowError):
    """A driver did not come up: its own message, and the end of its log for those who can show more than a line.

    A driver that ends before its first heartbeat (another one holds the lock, the definition can't be read) has said
    why in the last line of its log only.
    """

    def __init__(self, pipeline_id: str, reason: str, log: Path, tail: str) -> None:
        self.log = log
        self.tail = tail
        last_line = tail.rpartition("\n")[2]
        said = reason or last_line.partition(" failed: ")[2] or last_line or "the driver ended without a word"
        super().__init__(f"{pipeline_id}: the stream did not start: {said}; its log is {log}")


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where state is kept when nobody says: GLASSFLOW_STATE, else `.glassflow/state` in the working folder."""
    return Path(environment.get("GLASSFLOW_STATE") or Path(".glassflow") / "state").absolute()


def status(state: Path, pipeline_id: str) -> StreamStatus:
    """Tell how a stream is, by heartbeat and process table; raises `GlassflowError` when its folder can't be read."""
    folder = pipeline_folder(state, pipeline_id)
    heartbeat = _heartbeat(folder)
    judged, message = _judge(heartbeat)
    return StreamStatus(pipeline_id, judged, message, heartbeat, folder, wanted=_wanted(folder).exists())


def launch(deployment: Deployment, report: Callable[[str], None] = lambda _: None) -> StreamStatus:
    """Start a detached driver and wait until it runs, or waits for its topic.

    Raises `LaunchFailed` when the driver ends or has not come up in time; nothing of it is left running. The stream
    counts as wanted from here on, so that whoever looks after it tries again.
    """
    pipeline_id = deployment.config.pipeline_id
    folder = pipeline_folder(deployment.state, pipeline_id)
    log_file = folder / "driver.log"
    try:
        make_pipeline_folder(folder)
        _wanted(folder).touch()
        with log_file.open("ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                deployment.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_driver_environment(os.environ),
                start_new_session=True,
            )
    except OSError as error:
        raise GlassflowError(
            f"{folder}: cannot be written ({error.strerror}); choose another folder for state"
        ) from None
    report(f"{pipeline_id}: started the driver (pid {process.pid}); its log is {log_file}")
    failure = _await_up(folder, process.pid, lambda: process.poll() is None, deployment.timeout, report)
    if failure is not None:
        _end(folder, process.pid, start_of(process.pid), STOP_TIMEOUT)
        raise LaunchFailed(pipeline_id, failure, log_file, _log_tail(log_file, log_start))
    return status(deployment.state, pipeline_id)


def stop(state: Path, pipeline_id: str, timeout: float = STOP_TIMEOUT) -> Ending:
    """Ask a driver to finish its batch and end, and wait for that; past `timeout` seconds it is killed.

    The stream is not wanted any more. A killed driver's batch is done again at the next start; nothing is lost or
    doubled by it.
    """
    current = status(state, pipeline_id)
    _wanted(current.folder).unlink(missing_ok=True)
    return _halt(current, timeout)


def give_up(state: Path, pipeline_id: str) -> None:
    """Say that a stream is not wanted here any more: it runs elsewhere, and bringing it back would end it there."""
    _wanted(pipeline_folder(state, pipeline_id)).unlink(missing_ok=True)


def restart(deployment: Deployment, report: Callable[[str], None] = lambda _: None) -> StreamStatus:
    """Stop the driver, if there is one, and launch another on the same checkpoint."""
    take_over(deployment.state, deployment.config.pipeline_id, report)
    return launch(deployment, report)


def take_over(state: Path, pipeline_id: str, report: Callable[[str], None] = lambda _: None) -> None:
    """End the driver that runs a pipeline here, if there is one, so that another may go on from its checkpoint.

    One that makes progress finishes its batch; one that does not, or gives no signs of life, as when it or its JVM was
    stopped (SIGSTOP), is killed at once with all that it started. Whether somebody wants the stream to run is left as
    it is.
    """
    current = status(state, pipeline_id)
    if current.heartbeat is None or not is_alive(current.heartbeat):
        return
    why = "" if current.state in UP else f", which is {current.state.value}: {current.message}"
    report(f"{pipeline_id}: ending the driver that runs it (pid {current.heartbeat.pid}){why}")
    _halt(current, 0.0 if current.state in _STUCK else STOP_TIMEOUT)


def ensure_running(
    deployment: Deployment, report: Callable[[str], None] = lambda _: None
) -> tuple[StreamStatus, Action]:
    """Leave a good driver alone, and see to it that there is one; says what that took.

    A driver of another fingerprint (the definition was edited) is replaced on the same checkpoint, a dead, failed,
    stalled or silent one likewise. Raises `LaunchFailed`.
    """
    current = status(deployment.state, deployment.config.pipeline_id)
    action = _needed(current, deployment.config)
    if action is Action.HEALTH_CHECKED:
        return _settled(current, deployment, report), action
    return restart(deployment, report), action


def _halt(current: StreamStatus, timeout: float) -> Ending:
    heartbeat = current.heartbeat
    if heartbeat is None or not is_alive(heartbeat):
        return Ending.NOT_RUNNING
    ending = _end(current.folder, heartbeat.pid, heartbeat.process_started, timeout)
    if ending is Ending.KILLED:
        text = (
            f"did not finish its batch within {timeout:.0f} s and was killed; the batch is done again at the next start"
        )
        write_heartbeat(current.folder, heartbeat.model_copy(update={"state": DriverState.STOPPED, "message": text}))
    return ending


def _needed(current: StreamStatus, config: PipelineConfig) -> Action:
    if current.state is StreamState.STOPPED or current.heartbeat is None:
        return Action.LAUNCHED
    if current.state not in UP:
        return Action.RESTARTED
    return Action.HEALTH_CHECKED if current.heartbeat.fingerprint == config.fingerprint else Action.REDEPLOYED


def _settled(current: StreamStatus, deployment: Deployment, report: Callable[[str], None]) -> StreamStatus:
    """Wait for a driver that someone else is starting; one that is up is up."""
    heartbeat = current.heartbeat
    if current.state is not StreamState.STARTING or heartbeat is None:
        return current
    failure = _await_up(current.folder, heartbeat.pid, lambda: is_alive(heartbeat), deployment.timeout, report)
    if failure is not None:
        raise LaunchFailed(current.pipeline_id, failure, current.log, _log_tail(current.log))
    return status(deployment.state, current.pipeline_id)


def _await_up(
    folder: Path, pid: int, alive: Callable[[], bool], timeout: float, report: Callable[[str], None]
) -> str | None:
    """Wait until the driver `pid` is up, which gives None; else its reason, empty when it gave none."""
    deadline = time.monotonic() + timeout
    said = ""
    while True:
        living = alive()  # before its account is read: the last one is written before the end
        heartbeat = _heartbeat(folder)
        own = heartbeat if heartbeat and heartbeat.pid == pid else None
        if own and own.state in (DriverState.RUNNING, DriverState.WAITING) and living:
            return None
        if own and own.message and own.message != said:
            said = own.message
            report(said)
        if not living or (own and own.state in (DriverState.FAILED, DriverState.STOPPED)):
            return _why_ended(own)
        if time.monotonic() > deadline:
            return f"not up after {timeout:.0f} s" + (f" ({said})" if said else "")
        time.sleep(POLL)


def _why_ended(heartbeat: Heartbeat | None) -> str:
    if heartbeat and heartbeat.state is DriverState.STOPPED:
        return "it was stopped while it started"
    return heartbeat.message if heartbeat else ""


def _judge(heartbeat: Heartbeat | None) -> tuple[StreamState, str]:
    if heartbeat is None:
        return StreamState.STOPPED, "never started here"
    if heartbeat.state is DriverState.STOPPED:
        return StreamState.STOPPED, heartbeat.message or "stopped in good order"
    if heartbeat.state is DriverState.FAILED:
        return StreamState.FAILED, heartbeat.message or "the driver failed without a word"
    if not is_alive(heartbeat):
        return StreamState.FAILED, f"the driver (pid {heartbeat.pid}) died without a word; nothing is lost by it"
    if not is_fresh(heartbeat):
        silence = time.time() - heartbeat.updated_at
        return StreamState.STALE, f"no sign of life for {silence:.0f} s (more than {STALE_AFTER:.0f} s)"
    return StreamState(heartbeat.state.value), heartbeat.message


def _end(folder: Path, pid: int, started: str | None, timeout: float) -> Ending:
    """End a driver in good order, or past `timeout` seconds by force, with all that it has started."""
    if started is None or start_of(pid) != started:
        return Ending.NOT_RUNNING
    # The Python process alone: Spark's JVM is in the same group and must live until its query has stopped.
    _signal(pid, signal.SIGTERM)
    if _gone(pid, started, timeout):
        return Ending.STOPPED
    # Now the group, so that no JVM is left; but only one that the driver leads: another may be a shell's.
    if _group(pid) == pid:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    else:
        _signal(pid, signal.SIGKILL)
    if not _gone(pid, started, KILL_TIMEOUT):
        raise GlassflowError(
            f"pid {pid}: does not die even by SIGKILL; it waits for a disk or another device, look there"
        )
    # Spark's Python workers are in a group of their own, and would send what they hold once they wake up.
    end_remains(folder)
    return Ending.KILLED


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended in this moment, which is what was wanted
    except PermissionError:
        raise GlassflowError(
            f"pid {pid}: belongs to another user; stop the stream as the user that started it"
        ) from None


def _gone(pid: int, started: str, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while start_of(pid) == started:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def _heartbeat(folder: Path) -> Heartbeat | None:
    try:
        return read_heartbeat(folder)
    except (OSError, ValueError):
        raise GlassflowError(
            f"{folder / 'heartbeat.json'}: cannot be read; when no driver of another version or user runs, remove it"
        ) from None


def _wanted(folder: Path) -> Path:
    return folder / "wanted"


def _driver_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a driver inherits: not the run or instance of the Dagster process that happens to launch it."""
    return {name: value for name, value in environment.items() if not name.startswith("DAGSTER_")}


def _log_tail(log: Path, start: int = 0) -> str:
    """Give the last lines of a log, from byte `start` on."""
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(start, end - LOG_TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])
