"""The protocol by which commands, Dagster and others control streams, wherever their drivers run."""

from collections.abc import Callable
from typing import Protocol

from glassflow_dagster.control.launch import Action
from glassflow_dagster.control.status import StreamStatus
from glassflow_dagster.control.stop import STOP_TIMEOUT, Ending
from glassflow_dagster.definition.model.pipeline import PipelineConfig

# The lines of a driver's log that are shown unless more are asked for.
LOG_LINES = 100


class StreamRunner(Protocol):
    """Starts, monitors and stops streams; no stream runs in the caller's process.

    A stream has one driver, however often and from wherever it is launched. Every method may raise `GlassflowError`.
    """

    def launch(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Start a driver, wait until it runs or waits for its topic, and return the stream's status.

        The stream counts as wanted from now on. Raises `LaunchFailed` where the driver does not start; then none runs.
        """

    def ensure_running(self, config: PipelineConfig, report: Callable[[str], None]) -> tuple[StreamStatus, Action]:
        """Start, keep or redeploy the stream so that it runs with this definition; return its status and the action."""

    def restart(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the stream if it is running, then start it on the same checkpoint."""

    def stop(self, config: PipelineConfig, timeout: float = STOP_TIMEOUT) -> Ending:
        """Stop the stream after its current batch and mark it as not wanted, so that nothing restarts it.

        timeout: seconds for the batch; then the driver is killed, and the next start repeats the batch.
        """

    def kill(self, config: PipelineConfig) -> Ending:
        """End the stream's driver at once, in the middle of a batch; whether the stream is wanted does not change."""

    def status(self, config: PipelineConfig) -> StreamStatus:
        """Return the stream's status without contacting its driver."""

    def logs(self, config: PipelineConfig, lines: int = LOG_LINES) -> str:
        """Return the last lines of the driver's log; empty where there is none."""
