"""What runners share whose drivers run on other hosts: another system starts them, and starts them again."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from glassflow_dagster.control import hosts
from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.heartbeat import Heartbeat, pipeline_folder
from glassflow_dagster.control.hosts import Shared
from glassflow_dagster.control.launch import Action, LaunchFailed
from glassflow_dagster.control.launch_lock import launching
from glassflow_dagster.control.log import failure_in, message_in
from glassflow_dagster.control.runners.notes import read_note, write_note
from glassflow_dagster.control.runners.runner import LOG_LINES
from glassflow_dagster.control.status import UP, StreamState, StreamStatus, with_launch
from glassflow_dagster.control.stop import STOP_TIMEOUT, Ending, take_over
from glassflow_dagster.control.submission import STOPPED
from glassflow_dagster.control.wanted import is_wanted, unwant, want
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError

POLL_SECONDS = 1.0
# The note of what was known at the last launch, in the pipeline's local folder.
LAUNCH_NOTE = "launched.json"
# What ClickHouse knows of the driver before the one that runs now.
_ENDED = frozenset({StreamState.STOPPED, StreamState.FAILED, StreamState.STALE})


@dataclass(frozen=True)
class RemoteDriver:
    """A driver as the system sees it that runs it.

    name: by which the system knows it.
    fingerprint: of the definition that it was launched with.
    place: where its log is, for people.
    submission: by which its heartbeat is recognized; empty where nothing else could be running.
    """

    name: str
    state: StreamState
    message: str
    fingerprint: str
    place: str
    submission: str = ""


class Known(BaseModel):
    """What ClickHouse knew of a pipeline when this host launched it: the newest driver's epoch, and stop requests.

    What is newer was done elsewhere, or by that driver.
    """

    model_config = ConfigDict(frozen=True)

    epoch: int = 0
    requests: int = 0


@dataclass(frozen=True)
class RemoteRunner(DriverOptions, ABC):
    """A `StreamRunner` for a system that keeps drivers running; its subclasses know the system."""

    # Whether `find` finds what any host has launched; else ClickHouse is asked, too.
    _finds_all_drivers: ClassVar[bool] = True

    @abstractmethod
    def submit(self, config: PipelineConfig, report: Callable[[str], None]) -> None:
        """Have the system start the driver of a definition; none of the pipeline runs."""

    @abstractmethod
    def find(self, pipeline_id: str) -> RemoteDriver | None:
        """Return the driver that was submitted last; None where none was, or it was removed."""

    @abstractmethod
    def ask_to_end(self, pipeline_id: str, *, at_once: bool) -> None:
        """Have the system end the driver, and not start it again; return at once. at_once: without its batch."""

    @abstractmethod
    def log_of(self, pipeline_id: str, lines: int = LOG_LINES) -> str:
        """Return the last lines of the driver's log; empty where there is none."""

    @abstractmethod
    def require_runnable(self, config: PipelineConfig) -> None:
        """Raise `GlassflowError` for a pipeline that cannot run there."""

    def _is_wanted(self, pipeline_id: str, driver: RemoteDriver | None) -> bool:  # noqa: ARG002 - see KubernetesRunner
        """Return whether the stream is meant to run, as this host has noted."""
        return is_wanted(pipeline_folder(self.state, pipeline_id))

    def launch(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Start a driver, wait until it is up, and return the stream's status.

        Raises `LaunchFailed` where it does not come up, or another one runs.
        """
        self.require_runnable(config)
        with launching(pipeline_folder(self.state, config.pipeline_id)):
            found = self._look(config)
            if found.host and hosts.runs(found):
                raise LaunchFailed(config.pipeline_id, f"it is running already ({found.message})", found.log_shown, "")
            return self._launch(config, report)

    def ensure_running(self, config: PipelineConfig, report: Callable[[str], None]) -> tuple[StreamStatus, Action]:
        """Start, keep or redeploy the driver so that it runs with this definition; return status and action."""
        self.require_runnable(config)
        with launching(pipeline_folder(self.state, config.pipeline_id)):
            found = self._look(config)
            action = self.action_for(config, found)
            if action is Action.HEALTH_CHECKED:
                return found, action
            self._end_all(config, report)
            return self._launch(config, report), action

    def restart(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the driver if it is running, then start another one on the same checkpoint."""
        self.require_runnable(config)
        with launching(pipeline_folder(self.state, config.pipeline_id)):
            self._end_all(config, report)
            return self._launch(config, report)

    def stop(self, config: PipelineConfig, timeout: float = STOP_TIMEOUT) -> Ending:
        """Stop the driver after its current batch and mark the stream as not wanted, on all hosts.

        Raises `GlassflowError`, after the system's driver has ended, where other hosts could not be told.
        """
        try:
            # First, as another host that has launched it would start it again.
            hosts.tell_stopped(config)
        except GlassflowError as error:
            ending = self.stop_pipeline(config.pipeline_id, timeout)
            raise GlassflowError(
                f"{config.pipeline_id}: {ending.value.replace('_', ' ')}; other hosts, which may run it or start it "
                f"again, could not be told: {error}"
            ) from None
        ending = self.stop_pipeline(config.pipeline_id, timeout)
        found = self._look(config)
        if hosts.may_run(found):
            return hosts.stop(self.state, config, timeout)
        # Its system may have started it again in between.
        hosts.tell_stopped(config)
        return ending

    def kill(self, config: PipelineConfig) -> Ending:
        """Have the system end the driver at once; whether the stream is wanted does not change."""
        return self._end(config.pipeline_id, 0.0, lambda _: None)

    def status(self, config: PipelineConfig) -> StreamStatus:
        """Return the stream's status; STARTING while this host launches its driver, and the system has none yet."""
        return with_launch(self._look(config))

    def _look(self, config: PipelineConfig) -> StreamStatus:
        """Return the stream's status as the system sees its driver, with the heartbeat that ClickHouse has of it."""
        driver = self.find(config.pipeline_id)
        of_system = self._status(config.pipeline_id, driver)
        if driver and driver.state in UP and driver.state is not StreamState.RUNNING:
            return of_system
        try:
            shared = hosts.look(self.state, config)
        except GlassflowError as error:
            return replace(of_system, message=f"{of_system.message}; what other hosts know of it is not known: {error}")
        if driver and driver.state is StreamState.RUNNING:
            return _with_heartbeat(of_system, driver, shared.status)
        known = _known_at_launch(of_system.folder)
        if self._is_of_others(shared, driver, known):
            return self._status_of_others(config, shared.status)
        was_stopped = shared.is_stopped and shared.requests > known.requests
        return replace(of_system, wanted=of_system.wanted and not was_stopped)

    def logs(self, config: PipelineConfig, lines: int = LOG_LINES) -> str:
        """Return the last lines of the driver's log; empty where there is none."""
        return self.log_of(config.pipeline_id, lines)

    def stop_pipeline(self, pipeline_id: str, timeout: float = STOP_TIMEOUT) -> Ending:
        """Do what `stop` does, without the definition, which may be gone or invalid."""
        unwant(pipeline_folder(self.state, pipeline_id))
        return self._end(pipeline_id, timeout, lambda _: None)

    def status_of(self, pipeline_id: str) -> StreamStatus:
        """Return what the system knows of the stream's driver; the definition may be gone or invalid."""
        return self._status(pipeline_id, self.find(pipeline_id))

    def _status(self, pipeline_id: str, driver: RemoteDriver | None) -> StreamStatus:
        """Return the stream's status by what the system knows of its driver; None where it has none."""
        folder = pipeline_folder(self.state, pipeline_id)
        wanted = self._is_wanted(pipeline_id, driver)
        if driver is None:
            return StreamStatus(pipeline_id, StreamState.STOPPED, "never started from here", None, folder, wanted)
        return StreamStatus(pipeline_id, driver.state, driver.message, None, folder, wanted, log_place=driver.place)

    def _is_of_others(self, shared: Shared, driver: RemoteDriver | None, known: Known) -> bool:
        """Return whether the newest driver that ClickHouse knows is one that `find` cannot find: another host's."""
        if self._finds_all_drivers:
            return False
        is_newer = bool(shared.status.host) and shared.epoch > known.epoch
        return is_newer and not (driver and _is_of(driver, shared.status.heartbeat))

    def _status_of_others(self, config: PipelineConfig, known: StreamStatus) -> StreamStatus:
        """Return the status of another host's driver by what ClickHouse knows: one that is silent may be started again.

        Another one would fence it off while it starts, and two take longer than one.
        """
        # One that was ended in good order is started again by whoever has ended it.
        found = replace(known, wanted=known.wanted and known.state is not StreamState.STOPPED)
        if known.state is StreamState.STALE and known.heartbeat:
            again = self._started_again(config, known.heartbeat)
            return replace(found, state=StreamState.STARTING, message=again) if again else found
        return found

    def _started_again(self, config: PipelineConfig, heartbeat: Heartbeat) -> str | None:  # noqa: ARG002 - see StandaloneRunner
        """Return a message about the driver that the system has started in the place of one with this heartbeat.

        None where it has not, or so long ago that the driver should have been heard of.
        """
        return None

    def action_for(self, config: PipelineConfig, found: StreamStatus) -> Action:
        """Return what the stream, whose status was found, needs so that a healthy driver runs this definition."""
        driver = self.find(config.pipeline_id)
        if driver and driver.state in UP:
            fingerprint = driver.fingerprint
        elif found.host and found.heartbeat and hosts.runs(found):
            fingerprint = found.heartbeat.fingerprint
        else:
            return Action.LAUNCHED if found.state is StreamState.STOPPED else Action.RESTARTED
        if fingerprint != config.fingerprint:
            return Action.REDEPLOYED
        # The system sees a process that runs, and its heartbeat whether it makes progress.
        return Action.HEALTH_CHECKED if found.state in UP else Action.RESTARTED

    def _launch(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Submit a driver and wait until it is up; raise `LaunchFailed`, and have it ended, where it is not."""
        pipeline_id = config.pipeline_id
        current = self.find(pipeline_id)
        if current and current.state in UP:
            raise LaunchFailed(pipeline_id, f"it is running already ({current.message})", current.place, "")
        # A driver of this host would be fenced off, and would take the stream for unwanted then.
        take_over(self.state, pipeline_id, report)
        folder = pipeline_folder(self.state, pipeline_id)
        write_note(folder / LAUNCH_NOTE, self._known_now(config, report))
        want(folder)
        self.submit(config, report)
        failure = self._await_up(pipeline_id, report)
        if failure is not None:
            log = self.log_of(pipeline_id)
            driver = self.find(pipeline_id)
            self._end(pipeline_id, 0.0, report)
            raise LaunchFailed(pipeline_id, failure, driver.place if driver else "not there", log)
        return self.status_of(pipeline_id)

    def _known_now(self, config: PipelineConfig, report: Callable[[str], None]) -> Known:
        """Return what ClickHouse knows of the pipeline; nothing where this host need not reach it, but the driver."""
        try:
            shared = hosts.look(self.state, config)
        except GlassflowError as error:
            if not self._finds_all_drivers:
                raise
            report(f"{config.pipeline_id}: what other hosts know of it is not known: {error}")
            return Known()
        return Known(epoch=shared.epoch, requests=shared.requests)

    def _await_up(self, pipeline_id: str, report: Callable[[str], None]) -> str | None:
        """Wait until the driver runs; return None when it does, else the reason why not, empty where none is known."""
        deadline, message = time.monotonic() + self.timeout, ""
        while True:
            driver = self.find(pipeline_id)
            log = self.log_of(pipeline_id)
            if driver and driver.message != message:
                message = driver.message
                report(f"{pipeline_id}: {message}")
            if failures := [reason for line in log.splitlines() if (reason := failure_in(line))]:
                return failures[-1]
            if driver is None or driver.state not in UP:
                return driver.message if driver else "it was removed"
            if any(_is_up(message_in(line), pipeline_id) for line in log.splitlines()):
                return None
            if time.monotonic() > deadline:
                return f"not up after {self.timeout:.0f} s ({message})"
            time.sleep(POLL_SECONDS)

    def _end_all(self, config: PipelineConfig, report: Callable[[str], None]) -> None:
        """End the driver, whoever has launched it, before another one is launched."""
        self._end(config.pipeline_id, STOP_TIMEOUT, report)
        found = self._look(config)
        if not found.host:
            return
        if not hosts.runs(found):
            # Its system may be about to start it again.
            hosts.tell_stopped(config)
            return
        try:
            hosts.stop(self.state, config, STOP_TIMEOUT)
        except GlassflowError as error:
            report(f"{error}; the driver that is started now takes over")

    def _end(self, pipeline_id: str, timeout: float, report: Callable[[str], None]) -> Ending:
        """Have the system end the driver, by force after `timeout` seconds; return when it has ended."""
        driver = self.find(pipeline_id)
        if driver is None or driver.state not in UP:
            return Ending.NOT_RUNNING
        report(f"{pipeline_id}: ending the driver that runs it ({driver.message})")
        if timeout > 0:
            self.ask_to_end(pipeline_id, at_once=False)
            if self._has_ended(pipeline_id, timeout):
                return Ending.STOPPED
        self.ask_to_end(pipeline_id, at_once=True)
        if not self._has_gone(pipeline_id, STOP_TIMEOUT):
            raise GlassflowError(f"{pipeline_id}: {driver.name} does not end; look at it where it runs")
        return Ending.KILLED

    def _has_ended(self, pipeline_id: str, timeout: float) -> bool:
        """Wait for the driver's end in good order, for `timeout` seconds at most; return whether it has ended so."""
        deadline = time.monotonic() + timeout
        while True:
            # The system may count it as ended before it has finished its batch.
            last = self.log_of(pipeline_id).splitlines()[-1:]
            is_gone = self._has_gone(pipeline_id, 0.0)
            if is_gone and (not last or message_in(last[0]) == STOPPED):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)

    def _has_gone(self, pipeline_id: str, timeout: float) -> bool:
        """Wait until the system runs no driver any more, for `timeout` seconds at most; return whether it runs none."""
        deadline = time.monotonic() + timeout
        while (driver := self.find(pipeline_id)) and driver.state in UP:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True


def _known_at_launch(folder: Path) -> Known:
    """Return what was known at this host's last launch of a pipeline."""
    remedy = "remove it; a stop by another host may then be overlooked once"
    return read_note(folder / LAUNCH_NOTE, Known, remedy) or Known()


def _with_heartbeat(of_system: StreamStatus, driver: RemoteDriver, shared: StreamStatus) -> StreamStatus:
    """Return the status of a driver that the system sees running, with its heartbeat if ClickHouse has it."""
    if not shared.host or not _is_of(driver, shared.heartbeat) or shared.state in _ENDED:
        return of_system
    message = f"{of_system.message}; {shared.message}"
    return replace(of_system, state=shared.state, message=message, heartbeat=shared.heartbeat)


def _is_of(driver: RemoteDriver, heartbeat: Heartbeat | None) -> bool:
    """Return whether a heartbeat is this driver's."""
    return heartbeat is not None and (heartbeat.fingerprint, heartbeat.submission) == (
        driver.fingerprint,
        driver.submission,
    )


def _is_up(message: str, pipeline_id: str) -> bool:
    """Return whether a driver that has written this message runs, or waits for its topic."""
    return message == f"{pipeline_id} is running" or message.startswith("waiting: ")
