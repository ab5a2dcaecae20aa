"""Where drivers run: the one thing that assets, checks and sensors know of it.

Dagster launches, watches and stops streams through a `StreamRunner` and never hosts one. `LocalStreamRunner` keeps
them on this host, as detached processes beside their checkpoints.
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
    """Launches, judges and stops streams. Every method may raise `GlassflowError`."""

    @abstractmethod
    def ensure_running(
        self, definition: Path, config: PipelineConfig, report: Callable[[str], None]
    ) -> tuple[StreamStatus, Action]:
        """See to it that the stream runs by this definition; says what that took."""

    @abstractmethod
    def restart(self, definition: Path, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the stream, if it runs, and start it on the same checkpoint."""

    @abstractmethod
    def stop(self, pipeline_id: str) -> Ending:
        """End the stream after its batch; it is not wanted any more."""

    @abstractmethod
    def status(self, pipeline_id: str) -> StreamStatus:
        """Tell how the stream is, without asking its driver."""


class LocalStreamRunner(StreamRunner):
    """Drivers as detached processes of this host."""

    pyspark: dg.ResourceDependency[LazyPySparkResource]
    state: str = Field(description="the folder that holds heartbeats, logs and checkpoints")
    create_table: bool = Field(default=False, description="create a missing table even where the definition is silent")
    timeout: float = Field(default=LAUNCH_TIMEOUT, description="seconds that a launch may take")

    def ensure_running(
        self, definition: Path, config: PipelineConfig, report: Callable[[str], None]
    ) -> tuple[StreamStatus, Action]:
        """See to it that the stream runs by this definition; says what that took."""
        return process.ensure_running(self._deployment(definition, config), report)

    def restart(self, definition: Path, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the driver, if it runs, and launch another on the same checkpoint."""
        return process.restart(self._deployment(definition, config), report)

    def stop(self, pipeline_id: str) -> Ending:
        """End the driver after its batch; the stream is not wanted any more."""
        return process.stop(Path(self.state), pipeline_id)

    def status(self, pipeline_id: str) -> StreamStatus:
        """Tell how the stream is, by heartbeat and process table."""
        return process.status(Path(self.state), pipeline_id)

    def _deployment(self, definition: Path, config: PipelineConfig) -> Deployment:
        """Spark's settings are those of the `pyspark` resource, whose own session is never started for this."""
        return Deployment(
            path=definition,
            config=config,
            state=Path(self.state),
            create_table=self.create_table,
            timeout=self.timeout,
            spark_config=spark_settings(self.pyspark),
        )
