"""Runs drivers on this host, as detached processes with their checkpoints in a local folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver import hosts, process
from glassflow_dagster.driver.log import LogFormat
from glassflow_dagster.driver.process import LAUNCH_TIMEOUT, Action, Deployment, Ending, StreamStatus


@dataclass(frozen=True)
class LocalRunner:
    """A `StreamRunner` for this host; it sees and stops the drivers of other hosts, too (driver/hosts.py).

    state: the folder of checkpoints, heartbeats and logs. create_table: create a missing table even when the definition
    has no `create_table`. timeout: the seconds that a start may take. spark_config: settings of the drivers' Spark
    sessions. environment: variables of the drivers besides those of this process. log_format: of the drivers' messages;
    None for what the environment says.
    """

    state: Path
    create_table: bool = False
    timeout: float = LAUNCH_TIMEOUT
    spark_config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    log_format: LogFormat | None = None

    def ensure_running(self, config: PipelineConfig, report: Callable[[str], None]) -> tuple[StreamStatus, Action]:
        """Start, keep or redeploy the driver so that it runs with this definition; return status and action."""
        return hosts.ensure_running(self._deployment(config), report)

    def restart(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the driver if it is running, then start another one on the same checkpoint."""
        return process.restart(self._deployment(config), report)

    def stop(self, config: PipelineConfig) -> Ending:
        """Stop the driver after its current batch and mark the stream as not wanted."""
        return hosts.stop(self.state, config)

    def status(self, config: PipelineConfig) -> StreamStatus:
        """Return the stream's status: from heartbeat file and process table, or of another host from ClickHouse."""
        return hosts.status(self.state, config)

    def _deployment(self, config: PipelineConfig) -> Deployment:
        """Return how to start the driver of a definition."""
        return Deployment(
            config, self.state, self.create_table, self.timeout, self.spark_config, self.environment, self.log_format
        )
