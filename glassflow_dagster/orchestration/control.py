"""Starts, restarts or stops a stream for a Dagster run, by the run's mode and by who launched it."""

import time
from collections.abc import Callable
from enum import Enum

import dagster as dg
from pydantic import Field

from glassflow_dagster.control.launch import Action
from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.status import UP, StreamState, StreamStatus
from glassflow_dagster.control.stop import POLL
from glassflow_dagster.definition.model.pipeline import PipelineConfig

# Spark compiles its plan in the first batch, which takes 5 to 15 s; on a machine that starts several pipelines, longer.
FIRST_BATCH_WAIT = 120.0  # seconds


class Mode(Enum):
    """The action that a run requests."""

    ENSURE = "ENSURE"
    RESTART = "RESTART"
    STOP = "STOP"


class StreamRunConfig(dg.Config):
    """The configuration of a run in Dagster's Launchpad."""

    mode: Mode = Field(
        default=Mode.ENSURE,
        description=(
            "ENSURE launches the stream or checks the one that runs, and redeploys it after an edit of its "
            "definition; RESTART stops it and starts it from the same checkpoint; STOP ends it after its current "
            "batch and does not start it again."
        ),
    )


def control(
    mode: Mode, config: PipelineConfig, runner: StreamRunner, report: Callable[[str], None]
) -> tuple[StreamStatus, str]:
    """Apply the mode of a run that a user launched; return the stream's status afterwards and the action taken.

    After a start or restart, the status is that after the first batch.
    """
    if mode is Mode.STOP:
        ending = runner.stop(config)
        return runner.status(config), ending.value
    if mode is Mode.RESTART:
        runner.restart(config, report)
        return _after_first_batch(config, runner), Action.RESTARTED.value
    status, action = runner.ensure_running(config, report)
    return status if action is Action.HEALTH_CHECKED else _after_first_batch(config, runner), action.value


def ensure_if_wanted(
    config: PipelineConfig, runner: StreamRunner, report: Callable[[str], None]
) -> tuple[StreamStatus, str] | StreamStatus:
    """Ensure in an automatic run that the stream is running, unless a user has stopped it.

    Returns the status and the action taken; only the status when the stream is meant to be stopped, or is another
    host's (`may_take_over`).
    """
    status = runner.status(config)
    return control(Mode.ENSURE, config, runner, report) if status.wanted and may_take_over(status, config) else status


def may_take_over(status: StreamStatus, config: PipelineConfig) -> bool:
    """Return whether an automatic run may start the stream here.

    A stream of another host only where its driver is not up any more, and only if its checkpoint is in a store that
    this host reaches, too. An edited definition is no reason: two hosts with different ones would alternate.
    """
    return not status.host or (status.state not in UP and config.state is not None)


def _after_first_batch(config: PipelineConfig, runner: StreamRunner) -> StreamStatus:
    """Wait for a new driver's first batch, so that the run has counts to record and check; return the status.

    The wait ends early when no records wait, when the driver is not running (any more), or after FIRST_BATCH_WAIT. Of a
    driver on another host, the heartbeat that says that it runs comes some seconds after its start.
    """
    deadline = time.monotonic() + FIRST_BATCH_WAIT
    while True:
        status = runner.status(config)
        heartbeat = status.heartbeat
        nothing_to_wait_for = heartbeat is not None and (heartbeat.batch_id is not None or heartbeat.lag == 0)
        has_ended = status.state not in {StreamState.RUNNING, StreamState.STARTING}
        if has_ended or (status.state is StreamState.RUNNING and nothing_to_wait_for) or time.monotonic() > deadline:
            return status
        time.sleep(POLL)
