"""The interface through which Dagster controls streams: `StreamRunner`.

Dagster starts, monitors and stops streams through it; no stream runs in Dagster's processes. `LocalStreamRunner` runs
the drivers on this host, as detached processes with their checkpoints in a local folder.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver import process
from glassflow_dagster.driver.process import LAUNCH_TIMEOUT, Action, Deployment, Ending, StreamStatus
from glassflow_dagster.resources.spark import spark_settings


class StreamRunner(dg.ConfigurableResource, ABC):  # type: ignore[type-arg]
    """Starts, monitors and stops streams. Every method may raise `GlassflowError`."""

    @abstractmethod
    def ensure_running(
        self, definition: Path, config: PipelineConfig, report: Callable[[str], None]
    ) -> tuple[StreamStatus, Action]:
        """Start, keep or redeploy the stream so that it runs with this definition; return its status and the action."""

    @abstractmethod
    def restart(self, definition: Path, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the stream if it is running, then start it on the same checkpoint."""

    @abstractmethod
    def stop(self, pipeline_id: str) -> Ending:
        """Stop the stream after its current batch and mark it as not wanted, so that nothing restarts it."""

    @abstractmethod
    def status(self, pipeline_id: str) -> StreamStatus:
        """Return the stream's status without contacting its driver."""


class LocalStreamRunner(StreamRunner):
    """Runs drivers as detached processes on this host."""

    pyspark: dg.ResourceDependency[LazyPySparkResource]
    state: str = Field(description="folder of heartbeats, logs and checkpoints")
    create_table: bool = Field(
        default=False, description="create a missing table even when the definition has no create_table"
    )
    timeout: float = Field(default=LAUNCH_TIMEOUT, description="seconds that a start may take")

    def ensure_running(
        self, definition: Path, config: PipelineConfig, report: Callable[[str], None]
    ) -> tuple[StreamStatus, Action]:
        """Start, keep or redeploy the driver so that it runs with this definition; return status and action."""
        return process.ensure_running(self._deployment(definition, config), report)

    def restart(self, definition: Path, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the driver if it is running, then start another one on the same checkpoint."""
        return process.restart(self._deployment(definition, config), report)

    def stop(self, pipeline_id: str) -> Ending:
        """Stop the driver after its current batch and mark the stream as not wanted."""
        return process.stop(Path(self.state), pipeline_id)

    def status(self, pipeline_id: str) -> StreamStatus:
        """Return the stream's status from its heartbeat file and the process table."""
        return process.status(Path(self.state), pipeline_id)

    def _deployment(self, definition: Path, config: PipelineConfig) -> Deployment:
        """Build the deployment, with the Spark settings of the `pyspark` resource, whose session is not started."""
        return Deployment(
            path=definition,
            config=config,
            state=Path(self.state),
            create_table=self.create_table,
            timeout=self.timeout,
            spark_config=spark_settings(self.pyspark),
        )
