"""The protocol by which Dagster and others control streams, wherever their drivers run."""

from collections.abc import Callable
from typing import Protocol

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.process import Action, Ending, StreamStatus


class StreamRunner(Protocol):
    """Starts, monitors and stops streams; no stream runs in the caller's process.

    Every method may raise `GlassflowError`.
    """

    def ensure_running(self, config: PipelineConfig, report: Callable[[str], None]) -> tuple[StreamStatus, Action]:
        """Start, keep or redeploy the stream so that it runs with this definition; return its status and the action."""

    def restart(self, config: PipelineConfig, report: Callable[[str], None]) -> StreamStatus:
        """Stop the stream if it is running, then start it on the same checkpoint."""

    def stop(self, config: PipelineConfig) -> Ending:
        """Stop the stream after its current batch and mark it as not wanted, so that nothing restarts it."""

    def status(self, config: PipelineConfig) -> StreamStatus:
        """Return the stream's status without contacting its driver."""
