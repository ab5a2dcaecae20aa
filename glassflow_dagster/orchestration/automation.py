"""The automatic health checks of a pipeline.

A health check is a materialization on the schedule of `checks.every`; the asset checks run with it. The condition is
`cron_tick_passed`, not `on_cron`, which would also wait for new upstream materializations, and topics have none. Assets
that were never materialized are not checked, so that a new project starts no stream. The runs have the tag
`glassflow/automated`, so that they do not start a stream that a user has stopped.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path

import dagster as dg

# Dagster's own cron parser, so that exactly the schedules that its daemon can run are accepted. It is not public.
from dagster._utils.schedules import is_valid_cron_string, schedule_execution_time_iterator

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.problems import DefinitionError, Problem
from glassflow_dagster.orchestration.asset_keys import AssetKeys

# The tag of runs that no user has launched: they do not start a stream that a user has stopped.
AUTOMATED_TAG = "glassflow/automated"
HEALTH_CHECK_INTERVAL = 30  # seconds between evaluations; a health check starts at most this late
# In intervals of the schedule. One missed health check may be a restart of Dagster; two are a warning, three a failure.
WARN_AFTER, FAIL_AFTER = 2, 3
# Cron ticks that `longest_gap` examines: enough for a schedule of every 15 minutes on working days to show a weekend.
TICKS_SAMPLED = 1000


def require_schedule(definition: Path, config: PipelineConfig) -> None:
    """Raise `DefinitionError` for a schedule that Dagster's daemon cannot run."""
    if not is_valid_cron_string(config.checks.every):
        text = f"{config.checks.every!r} is not a cron schedule; write one such as '*/15 * * * *'"
        raise DefinitionError(definition, [Problem("checks.every", text)])


def health_check_condition(config: PipelineConfig) -> dg.AutomationCondition:  # type: ignore[type-arg]
    """Return the automation condition of the pipeline's assets: due at each tick of the schedule `checks.every`."""
    due = dg.AutomationCondition.cron_tick_passed(config.checks.every)
    return due & ~dg.AutomationCondition.in_progress() & ~dg.AutomationCondition.missing()


def freshness_policy(config: PipelineConfig) -> dg.FreshnessPolicy:
    """Return the freshness policy that reports missing health checks: the daemon is down, or every check run fails."""
    gap = longest_gap(config.checks.every)
    return dg.FreshnessPolicy.time_window(fail_window=FAIL_AFTER * gap, warn_window=WARN_AFTER * gap)


def longest_gap(cron: str) -> timedelta:
    """Return the longest time between two ticks of a valid cron schedule, in UTC."""
    # Fixed, so that every load of the definitions returns the same policy.
    start = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    ticks = islice(schedule_execution_time_iterator(start, cron, "UTC"), TICKS_SAMPLED)
    return max(later - earlier for earlier, later in pairwise(ticks))


def build_health_check_sensor(keys: AssetKeys) -> dg.AutomationConditionSensorDefinition:
    """Build the sensor that starts the pipeline's health checks; a slow start of one pipeline does not delay others."""
    return dg.AutomationConditionSensorDefinition(
        name=f"{keys.pipeline}__health_check",
        description="Runs the health check and the asset checks on the definition's schedule (checks.every).",
        target=dg.AssetSelection.assets(*keys.assets),
        run_tags={AUTOMATED_TAG: "health_check"},
        minimum_interval_seconds=HEALTH_CHECK_INTERVAL,
        # Dagster's default automation sensor is stopped when it is created.
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
