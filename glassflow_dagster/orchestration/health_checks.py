"""The sensor that runs the health checks of pipelines, on the schedules of their definitions.

A health check is a run of the pipeline's op: it restarts a failed stream, records figures, and runs the asset checks.
One sensor serves all pipelines of a component, and one run checks several pipelines: a run starts a process, which
costs more than the checks of a hundred small pipelines. The runs have the tag `glassflow/automated`, so that they do
not start a stream that a user has stopped. A pipeline that was never started, or that a user has stopped, is not
checked.

The schedules are not automation conditions of the assets: an upstream asset that will be requested counts as updated
for `AutomationCondition.eager()`, so each health check would run what depends on the table.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg
from pydantic import BaseModel

from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.status import UP
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG, next_tick
from glassflow_dagster.orchestration.cursors import parse_cursor

INTERVAL = 30  # seconds between evaluations; a health check starts at most this late
# Pipelines that one run checks, one after the other: a slow start delays no more than these.
PIPELINES_A_RUN = 25
# A run in one of these states has not ended.
_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING,
]  # fmt: skip


@dataclass(frozen=True)
class Scheduled:
    """A pipeline, its assets, and the schedule of its health checks (cron, UTC)."""

    pipeline: PipelineConfig
    keys: AssetKeys
    cron: str

    @property
    def pipeline_id(self) -> str:
        """The pipeline's id."""
        return self.pipeline.pipeline_id


class Cursor(BaseModel):
    """The sensor's cursor: the time up to which the ticks of each pipeline's schedule are done, seconds since 1970."""

    done_until: dict[str, float] = {}


def job_name(name: str) -> str:
    """Return the name of the job of health checks and restarts. name: of the component."""
    return f"{name}__health_check"


def build_health_check_job(name: str, pipelines: Sequence[AssetKeys]) -> dg.JobDefinition:
    """Build the job of health checks and restarts: the assets and checks of all pipelines, in one process.

    The op of a pipeline takes a tenth of a second; a process for each would take fifty times as long.
    """
    assets = [key for keys in pipelines for key in keys.assets]
    # Dagster resolves it with the code location's definitions.
    job: dg.JobDefinition = dg.define_asset_job(  # type: ignore[assignment]
        job_name(name),
        selection=dg.AssetSelection.assets(*assets),
        executor_def=dg.in_process_executor,
        description="Checks the streams, restarts those that failed, and runs the asset checks.",
    )
    return job


def build_health_check_sensor(
    name: str,
    job: dg.JobDefinition,
    pipelines: Sequence[Scheduled],
    runner: StreamRunner,
    status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    """Build the sensor that runs the health checks that are due. job: of `build_health_check_job`."""

    @dg.sensor(
        name=f"{name}__health_checks",
        description="Runs the health checks and the asset checks on the schedules of the definitions (checks.every).",
        job=job,
        minimum_interval_seconds=INTERVAL,
        default_status=status,
    )
    def health_checks(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return evaluate(
            pipelines,
            load_cursor(context.cursor),
            time.time(),
            is_wanted=partial(_is_wanted, runner),
            under_way=partial(_assets_under_way, context.instance, job_name(name)),
        )

    return health_checks


def evaluate(
    pipelines: Sequence[Scheduled],
    cursor: Cursor,
    now: float,
    is_wanted: Callable[[PipelineConfig], bool],
    under_way: Callable[[], frozenset[dg.AssetKey]],
) -> dg.SensorResult:
    """Request the health checks whose schedule had a tick since the cursor, several pipelines in one run.

    A check that is under way delays the pipeline's next one until it has ended. The ticks of a pipeline that is not
    wanted count as done. under_way: returns the assets of the health checks that have not ended.
    """
    done_until = {scheduled.pipeline_id: cursor.done_until.get(scheduled.pipeline_id, now) for scheduled in pipelines}
    due = [p for p in pipelines if next_tick(p.cron, done_until[p.pipeline_id]) <= now]
    wanted = [p for p in due if is_wanted(p.pipeline)]
    checked_now = under_way() if wanted else frozenset[dg.AssetKey]()
    delayed = [p for p in wanted if p.keys.table in checked_now]
    requested = [p for p in wanted if p not in delayed]
    done_until |= {p.pipeline_id: now for p in due if p not in delayed}
    return dg.SensorResult(
        run_requests=list(_requests(requested, now)), cursor=Cursor(done_until=done_until).model_dump_json()
    )


def load_cursor(cursor: str | None) -> Cursor:
    """Parse the sensor's cursor; without one, or with one of another version, the schedules begin now."""
    return parse_cursor(Cursor, cursor)


def _requests(pipelines: Sequence[Scheduled], now: float) -> Iterator[dg.RunRequest]:
    """Yield a run for every `PIPELINES_A_RUN` of the pipelines."""
    for start in range(0, len(pipelines), PIPELINES_A_RUN):
        chunk = pipelines[start : start + PIPELINES_A_RUN]
        yield dg.RunRequest(
            run_key=f"{now:.0f}:{chunk[0].pipeline_id}:{len(chunk)}",
            asset_selection=[key for scheduled in chunk for key in scheduled.keys.assets],
            tags={AUTOMATED_TAG: "health_check"},
        )


def _is_wanted(runner: StreamRunner, pipeline: PipelineConfig) -> bool:
    """Return whether a stream is meant to run, or runs anyway."""
    status = runner.status(pipeline)
    return status.wanted or status.state in UP


def _assets_under_way(instance: dg.DagsterInstance, job: str) -> frozenset[dg.AssetKey]:
    """Return the assets of the job's runs that have not ended."""
    runs = instance.get_runs(dg.RunsFilter(job_name=job, statuses=_UNDER_WAY))
    return frozenset(key for run in runs for key in run.asset_selection or ())
