"""What every step of a run has at hand: the definition, the options, the folder, and whom to tell."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from glassflow_dagster.clickhouse.queries import retry
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.heartbeat import DriverState
from glassflow_dagster.driver.heartbeat_writer import HeartbeatWriter
from glassflow_dagster.driver.options import Report, RunOptions

T = TypeVar("T")


@dataclass(frozen=True)
class RunContext:
    """One run of a pipeline. folder: the pipeline's own, with its checkpoint."""

    config: PipelineConfig
    options: RunOptions
    folder: Path
    heartbeat: HeartbeatWriter
    report: Report

    def warn(self, text: str) -> None:
        """Report what the run can live with."""
        self.report(f"warning: {text}")

    def report_starting(self, text: str) -> None:
        """Report a step of the start, in the heartbeat too."""
        self.heartbeat.say(DriverState.STARTING, text)
        self.report(text)

    def report_waiting(self, text: str) -> None:
        """Report that the start waits for a topic, in the heartbeat too."""
        self.heartbeat.say(DriverState.WAITING, text)
        self.report(text)

    def retry(self, ask: Callable[[], T]) -> T:
        """Ask ClickHouse until it answers, for `timeout_seconds` at most; return the answer."""
        return retry(ask, self.options.timeout_seconds, self.report)
