"""Runs drivers on this host, as detached processes with their checkpoints in a local folder."""

from collections.abc import Callable
from dataclasses import dataclass

from glassflow_dagster.control import hosts
from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.launch import Action, launch_driver, restart_driver
from glassflow_dagster.control.runners.runner import LOG_LINES
from glassflow_dagster.control.status import StreamStatus, read_log
from glassflow_dagster.control.stop import STOP_TIMEOUT, Ending, kill_driver
from glassflow_dagster.definition.model.pipeline import PipelineConfig


@dataclass(frozen=True)
class LocalRunner(DriverOptions):
    """A `StreamRunner` for this host; it sees and stops the drivers of other hosts, too (control/hosts.py)."""

    def launch(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Start a driver, wait until it is up, and return the stream's status; raises `LaunchFailed`."""
        return launch_driver(self.deployment(config), report)

    def ensure_running(self, config: PipelineConfig, report: Callable[[str], None]) -> tuple[StreamStatus, Action]:
        """Start, keep or redeploy the driver so that it runs with this definition; return status and action."""
        return hosts.ensure_running(self.deployment(config), report)

    def restart(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the driver if it is running, then start another one on the same checkpoint."""
        return restart_driver(self.deployment(config), report)

    def stop(self, config: PipelineConfig, timeout: float = STOP_TIMEOUT) -> Ending:
        """Stop the driver after its current batch and mark the stream as not wanted."""
        return hosts.stop(self.state, config, timeout)

    def kill(self, config: PipelineConfig) -> Ending:
        """Kill this host's driver with all processes that it has started; whether the stream is wanted stays."""
        return kill_driver(self.state, config.pipeline_id)

    def status(self, config: PipelineConfig) -> StreamStatus:
        """Return the stream's status: from heartbeat file and process table, or of another host from ClickHouse."""
        return hosts.status(self.state, config)

    def logs(self, config: PipelineConfig, lines: int = LOG_LINES) -> str:
        """Return the last lines of this host's driver; empty where there is none."""
        return read_log(self.state, config.pipeline_id, lines)
