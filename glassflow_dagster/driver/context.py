"""The context that every step of a run shares: the definition, the options, the folder, and how to report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from glassflow_dagster.control.heartbeat import DriverState
from glassflow_dagster.control.log import DriverLog
from glassflow_dagster.control.pool_launch import more_memory
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.heartbeat_writer import HeartbeatWriter
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.stores.clickhouse.queries import retry
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.checkpoint.open_storage import open_storage
from glassflow_dagster.stream.spark.spark_errors import MORE_MEMORY

T = TypeVar("T")


@dataclass(frozen=True)
class RunContext:
    """One run of a pipeline by a driver.

    folder: the pipeline's local folder, which holds its checkpoint unless that is in another store.
    report: writes a message for the user.
    """

    config: PipelineConfig
    options: RunOptions
    folder: Path
    heartbeat: HeartbeatWriter
    report: DriverLog

    def checkpoint(self) -> Checkpoint:
        """Return the pipeline's checkpoint, without reading it."""
        return Checkpoint(open_storage(self.config.state, self.folder, self.config.pipeline_id))

    @property
    def topic_patience(self) -> float | None:
        """Seconds to wait for a topic; None for ever: a run until caught up cannot, one that keeps running can."""
        return self.options.timeout_seconds if self.options.until_caught_up else None

    def more_memory(self) -> str:
        """Return how Spark's JVM gets more memory: that of a pool in another way."""
        pool = self.options.pool_of(self.config)
        return more_memory(self.options.state, pool) if pool else MORE_MEMORY

    def warn(self, text: str) -> None:
        """Report a problem that does not stop the run."""
        self.report.warning(text)

    def report_starting(self, text: str) -> None:
        """Report a step of the start, and write it into the heartbeat with the state STARTING."""
        self.heartbeat.set_state(DriverState.STARTING, text)
        self.report(text)

    def report_unreachable(self, text: str) -> None:
        """Report a server that does not answer, and write it into the heartbeat with the state STARTING."""
        self.heartbeat.set_state(DriverState.STARTING, text)
        self.report.problem(text)

    def report_waiting(self, text: str) -> None:
        """Report that the start waits for a topic, and write it into the heartbeat with the state WAITING."""
        self.heartbeat.set_state(DriverState.WAITING, text)
        self.report(text)

    def retry(self, request: Callable[[], T]) -> T:
        """Call a function that queries ClickHouse until it succeeds, `timeout_seconds` at most; return its result."""
        return retry(request, self.options.timeout_seconds, self.report.problem)
