"""The metrics of pipelines that run on this host, from the heartbeats of their drivers."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from glassflow_dagster.control.heartbeat import Heartbeat, pipelines_in
from glassflow_dagster.control.status import StreamState, StreamStatus, stream_status
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.metrics.pipeline_metrics import OUTCOMES, Driver, PipelineMetrics
from glassflow_dagster.stores.bookkeeping.outcomes import residual

# The states of a driver whose gauges are of now, not of its last breath.
_LIVE = frozenset({StreamState.RUNNING, StreamState.STALLED})


def read_state_folder(state: Path, report: Callable[[str], None]) -> Iterator[PipelineMetrics]:
    """Yield the metrics of all pipelines that have run on a state folder; report one whose heartbeat is unreadable."""
    for pipeline in pipelines_in(state):
        try:
            yield from read_pipeline(state, pipeline)
        except GlassflowError as problem:
            report(f"{pipeline}: {problem}")


def read_pipeline(state: Path, pipeline_id: str) -> list[PipelineMetrics]:
    """Return the metrics of one pipeline; an empty list when it has not run on the state folder."""
    stream = stream_status(state, pipeline_id)
    return [_metrics(stream, stream.heartbeat)] if stream.heartbeat else []


def _metrics(stream: StreamStatus, beat: Heartbeat) -> PipelineMetrics:
    """Return a pipeline's metrics. What changes by itself is left out when no driver is there to follow it."""
    is_live = stream.state in _LIVE
    lags = beat.partition_lags if is_live else {}
    disk = shutil.disk_usage(stream.folder)
    # A driver that starts has not read the ledger yet. Zeros would look as if all records were counted anew.
    has_totals = beat.epoch is not None
    return PipelineMetrics(
        pipeline=stream.pipeline_id,
        outcomes={outcome: getattr(beat.totals, name) for outcome, name in OUTCOMES.items()} if has_totals else {},
        residual=residual(beat.totals, joins=beat.joins, lost_waiting=beat.lost_waiting) if has_totals else None,
        driver=Driver(
            up=stream.state is StreamState.RUNNING,
            wanted=stream.wanted,
            heartbeat_age=max(0.0, time.time() - beat.updated_at),
            disk_free=disk.free,
            disk_size=disk.total,
        ),
        epoch=beat.epoch,
        lags={t: {p: (lag.records, lag.seconds) for p, lag in partitions.items()} for t, partitions in lags.items()},
        dead_letters_waiting=beat.dead_letters_waiting,
        state_keys=beat.state_keys if is_live else None,
        state_bytes=beat.state_bytes,
        watermark_lag=time.time() - beat.watermark if is_live and beat.watermark is not None else None,
        measures=beat.measures,
        batch_phases=beat.batch_phases,
    )
