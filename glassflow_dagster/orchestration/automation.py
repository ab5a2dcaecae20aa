"""When Dagster looks after a pipeline by itself.

A health check is an ordinary materialization on the schedule of `checks.every`; the checks run along. It is
`cron_tick_passed`, not `on_cron`: the latter waits for something new upstream, which a stream never materializes by
itself. Assets that were never materialized are left alone, so that a fresh project launches nothing; a stream that
someone stopped is recognised by the run, which carries a tag that says nobody asked for it.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path

import dagster as dg

# Dagster's own reading of cron, so that what is accepted here is what its daemon runs. It has no public name.
from dagster._utils.schedules import is_valid_cron_string, schedule_execution_time_iterator

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.problems import DefinitionError, Problem
from glassflow_dagster.orchestration.asset_keys import AssetKeys

# On runs that nobody asked for: such a run leaves a stream alone that someone stopped.
AUTOMATED_TAG = "glassflow/automated"
HEALTH_CHECK_INTERVAL = 30  # seconds between looks at the clock; a tick is noticed at most this late
# One missed health check may be a restart of Dagster; two are worth a look, three are an alarm.
WARN_AFTER, FAIL_AFTER = 2, 3
# Enough ticks of "every quarter of an hour, on working days" to see its weekend.
TICKS_SAMPLED = 1000


def require_schedule(definition: Path, config: PipelineConfig) -> None:
    """Refuse a schedule that the daemon could not run; raises `DefinitionError`."""
    if not is_valid_cron_string(config.checks.every):
        text = f"{config.checks.every!r} is no cron schedule; write one such as '*/15 * * * *'"
        raise DefinitionError(definition, [Problem("checks.every", text)])


def health_check_condition(config: PipelineConfig) -> dg.AutomationCondition:  # type: ignore[type-arg]
    """When an asset of the pipeline is due for a health check."""
    due = dg.AutomationCondition.cron_tick_passed(config.checks.every)
    return due & ~dg.AutomationCondition.in_progress() & ~dg.AutomationCondition.missing()


def freshness_policy(config: PipelineConfig) -> dg.FreshnessPolicy:
    """Say when the absence of health checks is itself an alarm: the daemon is down, or every one of them fails."""
    gap = longest_gap(config.checks.every)
    return dg.FreshnessPolicy.time_window(fail_window=FAIL_AFTER * gap, warn_window=WARN_AFTER * gap)


def longest_gap(cron: str) -> timedelta:
    """Give the longest time between two ticks of a valid schedule, in UTC."""
    start = datetime(2024, 1, 1, tzinfo=UTC).timestamp()  # any will do; a fixed one gives the same policy at each load
    ticks = islice(schedule_execution_time_iterator(start, cron, "UTC"), TICKS_SAMPLED)
    return max(later - earlier for earlier, later in pairwise(ticks))


def build_health_check_sensor(names: AssetKeys) -> dg.AutomationConditionSensorDefinition:
    """Build what asks for the pipeline's health checks: one for each, so that a slow launch holds up no other."""
    return dg.AutomationConditionSensorDefinition(
        name=f"{names.pipeline}__health_check",
        description="Runs the health check and the asset checks on the definition's schedule (checks.every).",
        target=dg.AssetSelection.assets(*names.assets),
        run_tags={AUTOMATED_TAG: "health_check"},
        minimum_interval_seconds=HEALTH_CHECK_INTERVAL,
        # The one that Dagster would add by itself is created stopped.
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
