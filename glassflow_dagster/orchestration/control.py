"""What a run does with a stream, by its mode and by who asked for it."""

import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import dagster as dg
from pydantic import Field

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.process import POLL, Action, StreamState, StreamStatus
from glassflow_dagster.resources.stream_runner import StreamRunner

# Spark compiles its plan during the first batch, which takes 5 to 15 s; a topic without records is known by then too.
FIRST_BATCH_WAIT = 20.0  # seconds


class Mode(Enum):
    """What is asked for."""

    ENSURE = "ENSURE"
    RESTART = "RESTART"
    STOP = "STOP"


class StreamRunConfig(dg.Config):
    """A run's configuration, as the Launchpad offers it."""

    mode: Mode = Field(
        default=Mode.ENSURE,
        description=(
            "ENSURE launches the stream or checks the one that runs, and redeploys it after an edit of its definition; "
            "RESTART ends and starts it on the same checkpoint; STOP lets it finish its batch and ends it for good."
        ),
    )


def control(
    mode: Mode, definition: Path, config: PipelineConfig, runner: StreamRunner, report: Callable[[str], None]
) -> tuple[StreamStatus, str]:
    """Do what a person asked for; gives the state afterwards and what was done."""
    if mode is Mode.STOP:
        ending = runner.stop(config.pipeline_id)
        return runner.status(config.pipeline_id), ending.value
    if mode is Mode.RESTART:
        runner.restart(definition, config, report)
        return _after_first_batch(config, runner), Action.RESTARTED.value
    status, action = runner.ensure_running(definition, config, report)
    return status if action is Action.HEALTH_CHECKED else _after_first_batch(config, runner), action.value


def ensure_if_wanted(
    definition: Path, config: PipelineConfig, runner: StreamRunner, report: Callable[[str], None]
) -> tuple[StreamStatus, str] | StreamStatus:
    """Do what the schedule asks for; gives the state alone when the stream is not meant to run and was left so."""
    status = runner.status(config.pipeline_id)
    return control(Mode.ENSURE, definition, config, runner, report) if status.wanted else status


def _after_first_batch(config: PipelineConfig, runner: StreamRunner) -> StreamStatus:
    """Give a new driver time for its first batch, so that a launch already has figures to show and to check."""
    deadline = time.monotonic() + FIRST_BATCH_WAIT
    while True:
        status = runner.status(config.pipeline_id)
        heartbeat = status.heartbeat
        idle = heartbeat is None or heartbeat.batch_id is not None or heartbeat.lag == 0
        if idle or status.state is not StreamState.RUNNING or time.monotonic() > deadline:
            return status
        time.sleep(POLL)
