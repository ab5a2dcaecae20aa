"""The observer sensor: records figures of the heartbeats, and requests runs that restart failed streams.

It reads files of this host, and ClickHouse for streams that do not run here, so it can run every half minute, for all
pipelines of a component. It records something only after a new batch or a change of state, so an idle stream does not
fill Dagster's event log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
from pydantic import BaseModel

from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.status import UP, StreamStatus
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG
from glassflow_dagster.orchestration.control import may_take_over
from glassflow_dagster.orchestration.cursors import parse_cursor
from glassflow_dagster.orchestration.metadata import (
    Metadata,
    observed_joined,
    observed_side,
    observed_stream,
    observed_table,
    observed_topics,
)
from glassflow_dagster.runtime.safe_text import printable, printable_values

OBSERVER_INTERVAL = 30  # seconds
# Restarts without a new batch in between; after that only the scheduled health check restarts the stream.
MAX_RESTARTS = 3


@dataclass(frozen=True)
class Observed:
    """A pipeline that is observed, and its assets."""

    pipeline: PipelineConfig
    keys: AssetKeys


class Mark(BaseModel):
    """What was observed of a pipeline last: its state (`mark`), the last batch, and the restarts requested since."""

    mark: str = ""
    batch: str = ""
    restarts: int = 0


class Cursor(BaseModel):
    """The sensor's cursor: pipeline -> what was observed of it last."""

    marks: dict[str, Mark] = {}


@dataclass(frozen=True)
class Observation:
    """What an evaluation of one pipeline records, and the restart that it requests, if any."""

    mark: Mark
    events: tuple[dg.AssetObservation, ...] = ()
    restart: dg.RunRequest | None = None


def build_observer(  # noqa: PLR0913 - the parts of a sensor
    name: str,
    job: dg.JobDefinition,
    pipelines: Sequence[Observed],
    runner: StreamRunner,
    status: dg.DefaultSensorStatus,
    *,
    restarts: bool,
) -> dg.SensorDefinition:
    """Build the observer of all pipelines.

    job: of `build_health_check_job`.
    restarts: of failed streams.
    """

    @dg.sensor(
        name=f"{name}__observer",
        description="Records the streams' figures; restarts a stream that failed, stalled or sends no heartbeat.",
        job=job,
        minimum_interval_seconds=OBSERVER_INTERVAL,
        default_status=status,
    )
    def observer(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        marks = load_cursor(context.cursor).marks
        observations: dict[str, Observation] = {}
        for observed in pipelines:
            pipeline_id = observed.pipeline.pipeline_id
            last = marks.get(pipeline_id, Mark())
            try:
                observations[pipeline_id] = evaluate(
                    runner.status(observed.pipeline), observed, last, restarts=restarts
                )
            except GlassflowError as error:
                # A state that cannot be read hides no other pipeline.
                context.log.warning("%s: %s", pipeline_id, printable(str(error)))
                observations[pipeline_id] = Observation(last)
        found = observations.values()
        return dg.SensorResult(
            run_requests=[observation.restart for observation in found if observation.restart],
            asset_events=[event for observation in found for event in observation.events],
            cursor=Cursor(marks={name: one.mark for name, one in observations.items()}).model_dump_json(),
        )

    return observer


def load_cursor(cursor: str | None) -> Cursor:
    """Parse the sensor's cursor; one of another version is discarded, which causes one repeated observation."""
    return parse_cursor(Cursor, cursor)


def evaluate(status: StreamStatus, observed: Observed, last: Mark, *, restarts: bool = True) -> Observation:
    """Decide from a stream's status and its last mark what to record and whether to request a restart.

    Nothing is done about a stream that is stopped on purpose. An equal mark (`_mark`) means that driver process, state
    and batch are those of the last evaluation: then nothing is recorded.
    """
    if not status.wanted and status.state not in UP:
        return Observation(last)
    mark, batch = _mark(status), _batch(status) or last.batch
    # Only a new batch resets the count of restarts: a stream that fails again and again may run at some evaluations.
    count = last.restarts if batch == last.batch else 0
    restart = None
    # One request per failure: a restart takes longer than the sensor's interval, so the next evaluation sees the same.
    restarts = restarts and may_take_over(status, observed.pipeline)
    if restarts and status.state not in UP and mark != last.mark and count < MAX_RESTARTS:
        count += 1
        restart = _restart(status, observed.keys, f"{mark}:{count}")
    events = () if mark == last.mark else tuple(_observations(status, observed.pipeline, observed.keys))
    return Observation(Mark(mark=mark, batch=batch, restarts=count), events, restart)


def _mark(status: StreamStatus) -> str:
    """Return a text that changes with the driver process, the state and the batch; a new one is recorded."""
    heartbeat = status.heartbeat
    # Two hosts may have drivers with the same process id.
    driver = f"{heartbeat.pid}@{status.host}" if heartbeat and status.host else heartbeat.pid if heartbeat else ""
    return f"{driver}:{status.state.value}:{heartbeat.batch_id}" if heartbeat else status.state.value


def _batch(status: StreamStatus) -> str:
    """Return the id of the last committed batch, with its checkpoint's; empty when the heartbeat has none."""
    heartbeat = status.heartbeat
    return "" if heartbeat is None or heartbeat.batch_id is None else f"{heartbeat.checkpoint_id}:{heartbeat.batch_id}"


def _restart(status: StreamStatus, keys: AssetKeys, failure: str) -> dg.RunRequest:
    """Build the request for a restart; `failure` identifies it, so that Dagster starts one run for it."""
    return dg.RunRequest(
        run_key=f"{status.pipeline_id}:{failure}",
        asset_selection=keys.assets,
        tags={AUTOMATED_TAG: "restart", "glassflow/reason": status.state.value},
    )


def _observations(status: StreamStatus, pipeline: PipelineConfig, keys: AssetKeys) -> Iterator[dg.AssetObservation]:
    """Yield an observation of each asset with metadata, in the order of the data flow."""
    heartbeat = status.heartbeat
    metadata_by_key: dict[dg.AssetKey, Metadata] = {}
    if heartbeat:
        for raw, source in zip(keys.raw, pipeline.inputs, strict=True):
            metadata_by_key[raw] = observed_topics(heartbeat, source.topic_names or tuple(heartbeat.lags))
        metadata_by_key |= {key: observed_side(status) for key in keys.deduplicated if key}
    metadata_by_key[keys.stream] = observed_joined(status) if keys.joined else observed_stream(status)
    if heartbeat:
        of_table = observed_table(heartbeat, is_one_of_many=bool(keys.routes))
        metadata_by_key[keys.table] = {**metadata_by_key.get(keys.table, {}), **of_table}
    for key, metadata in metadata_by_key.items():
        if metadata:
            yield dg.AssetObservation(key, metadata=printable_values(metadata))
