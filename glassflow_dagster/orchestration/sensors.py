"""A pipeline's observer: live figures from the heartbeat, and a run that brings back a stream that died.

It asks no server, only files of this host, so it is cheap enough for every half minute. Between two looks without a
new batch or state it records nothing: an idle stream does not fill Dagster's event log.
"""

from collections.abc import Iterator

import dagster as dg
from pydantic import BaseModel, ValidationError

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.process import UP, StreamStatus
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG
from glassflow_dagster.orchestration.metadata import (
    Metadata,
    observed_joined,
    observed_side,
    observed_stream,
    observed_table,
    observed_topic,
)
from glassflow_dagster.resources.stream_runner import StreamRunner

OBSERVER_INTERVAL = 30  # seconds
# A stream that dies again at once is not fixed by more of the same; from then on the scheduled health check tries.
MAX_RESTARTS = 3


class Cursor(BaseModel):
    """The sensor's memory: what it recorded last, the stream's last batch, and the restarts asked for since that."""

    mark: str = ""
    batch: str = ""
    restarts: int = 0


def build_observer(pipeline: PipelineConfig, names: AssetKeys) -> dg.SensorDefinition:
    """Build the pipeline's observer. It needs the resource `stream_runner`."""

    @dg.sensor(
        name=f"{names.pipeline}__observer",
        description="Records the stream's live figures; asks for a restart when it failed, stalled or fell silent.",
        # Without it a RunRequest fails, and only in the moment it is needed.
        target=dg.AssetSelection.assets(*names.assets),
        minimum_interval_seconds=OBSERVER_INTERVAL,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def observer(context: dg.SensorEvaluationContext, stream_runner: StreamRunner) -> dg.SensorResult | dg.SkipReason:
        return look(stream_runner.status(pipeline.pipeline_id), pipeline, names, load_cursor(context.cursor))

    return observer


def load_cursor(cursor: str | None) -> Cursor:
    """Read the sensor's memory; one that another version wrote is forgotten, which costs one observation."""
    try:
        return Cursor.model_validate_json(cursor) if cursor else Cursor()
    except ValidationError:
        return Cursor()


def look(
    status: StreamStatus, pipeline: PipelineConfig, names: AssetKeys, seen: Cursor
) -> dg.SensorResult | dg.SkipReason:
    """Decide what to record and whether to ask for a restart."""
    if not status.wanted and status.state not in UP:
        return dg.SkipReason(f"{status.state.value}: {status.message}; it is not meant to run, materialize to start it")
    mark, batch = _mark(status), _batch(status) or seen.batch
    # Only a batch shows that a restart has fixed something: a stream may be seen running before each of its deaths.
    restarts = seen.restarts if batch == seen.batch else 0
    requests: list[dg.RunRequest] = []
    # One request for one death: the launch takes longer than the interval, and health checks follow anyway.
    if status.state not in UP and mark != seen.mark and restarts < MAX_RESTARTS:
        restarts += 1
        requests = [_restart(status, names, f"{mark}:{restarts}")]
    return dg.SensorResult(
        run_requests=requests,
        asset_events=[] if mark == seen.mark else list(_observations(status, pipeline, names)),
        cursor=Cursor(mark=mark, batch=batch, restarts=restarts).model_dump_json(),
    )


def _mark(status: StreamStatus) -> str:
    """Name what is observed: another driver, state or batch is something new."""
    heartbeat = status.heartbeat
    return f"{heartbeat.pid}:{status.state.value}:{heartbeat.batch_id}" if heartbeat else status.state.value


def _batch(status: StreamStatus) -> str:
    """Name the last batch that was closed; empty where the driver does not tell."""
    heartbeat = status.heartbeat
    return "" if heartbeat is None or heartbeat.batch_id is None else f"{heartbeat.checkpoint_id}:{heartbeat.batch_id}"


def _restart(status: StreamStatus, names: AssetKeys, death: str) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=f"{status.pipeline_id}:{death}",
        asset_selection=names.assets,
        tags={AUTOMATED_TAG: "restart", "glassflow/reason": status.state.value},
    )


def _observations(status: StreamStatus, pipeline: PipelineConfig, names: AssetKeys) -> Iterator[dg.AssetObservation]:
    """Observe each asset of which there is something to say, in the order the data moves."""
    heartbeat = status.heartbeat
    figures: dict[dg.AssetKey, Metadata] = {}
    if heartbeat:
        for raw, source in zip(names.raw, pipeline.inputs, strict=True):
            figures[raw] = observed_topic(heartbeat, source.topic)
        figures |= {key: observed_side(status) for key in names.deduplicated if key}
    figures[names.stream] = observed_joined(status) if names.joined else observed_stream(status)
    if heartbeat:
        figures[names.table] = {**figures.get(names.table, {}), **observed_table(heartbeat)}
    for key, metadata in figures.items():
        if metadata:
            yield dg.AssetObservation(key, metadata=metadata)
