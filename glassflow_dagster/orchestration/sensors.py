"""A pipeline's observer sensor: records figures of the heartbeat, and requests a run that restarts a failed stream.

It reads only files on this host, so it can run every half minute. It records something only after a new batch or a
change of state, so an idle stream does not fill Dagster's event log.
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
# Restarts without a new batch in between; after that only the scheduled health check restarts the stream.
MAX_RESTARTS = 3


class Cursor(BaseModel):
    """The sensor's cursor: the last recorded state (`mark`), the last batch, and the restarts requested since then."""

    mark: str = ""
    batch: str = ""
    restarts: int = 0


def build_observer(pipeline: PipelineConfig, keys: AssetKeys) -> dg.SensorDefinition:
    """Build the pipeline's observer. It needs the resource `stream_runner`."""

    @dg.sensor(
        name=f"{keys.pipeline}__observer",
        description="Records the stream's metrics; requests a restart when it failed, stalled or sends no heartbeat.",
        # Required: without a target, Dagster rejects the sensor's run requests.
        target=dg.AssetSelection.assets(*keys.assets),
        minimum_interval_seconds=OBSERVER_INTERVAL,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def observer(context: dg.SensorEvaluationContext, stream_runner: StreamRunner) -> dg.SensorResult | dg.SkipReason:
        return evaluate(stream_runner.status(pipeline.pipeline_id), pipeline, keys, load_cursor(context.cursor))

    return observer


def load_cursor(cursor: str | None) -> Cursor:
    """Parse the sensor's cursor; one of another version is discarded, which causes one repeated observation."""
    try:
        return Cursor.model_validate_json(cursor) if cursor else Cursor()
    except ValidationError:
        return Cursor()


def evaluate(
    status: StreamStatus, pipeline: PipelineConfig, keys: AssetKeys, last: Cursor
) -> dg.SensorResult | dg.SkipReason:
    """Decide from the stream's status and the last cursor what to record and whether to request a restart.

    An equal mark (`_mark`) means that driver process, state and batch are those of the last evaluation.
    """
    if not status.wanted and status.state not in UP:
        return dg.SkipReason(f"{status.state.value}: {status.message}; materialize the table to start it")
    mark, batch = _mark(status), _batch(status) or last.batch
    # Only a new batch resets the count of restarts: a stream that fails again and again may run at some evaluations.
    restarts = last.restarts if batch == last.batch else 0
    requests: list[dg.RunRequest] = []
    # One request per failure: a restart takes longer than the sensor's interval, so the next evaluation sees the same.
    if status.state not in UP and mark != last.mark and restarts < MAX_RESTARTS:
        restarts += 1
        requests = [_restart(status, keys, f"{mark}:{restarts}")]
    return dg.SensorResult(
        run_requests=requests,
        asset_events=[] if mark == last.mark else list(_observations(status, pipeline, keys)),
        cursor=Cursor(mark=mark, batch=batch, restarts=restarts).model_dump_json(),
    )


def _mark(status: StreamStatus) -> str:
    """Return a text that changes with the driver process, the state and the batch; a new one is recorded."""
    heartbeat = status.heartbeat
    return f"{heartbeat.pid}:{status.state.value}:{heartbeat.batch_id}" if heartbeat else status.state.value


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
            metadata_by_key[raw] = observed_topic(heartbeat, source.topic)
        metadata_by_key |= {key: observed_side(status) for key in keys.deduplicated if key}
    metadata_by_key[keys.stream] = observed_joined(status) if keys.joined else observed_stream(status)
    if heartbeat:
        metadata_by_key[keys.table] = {**metadata_by_key.get(keys.table, {}), **observed_table(heartbeat)}
    for key, metadata in metadata_by_key.items():
        if metadata:
            yield dg.AssetObservation(key, metadata=metadata)
