"""The schedule of a pipeline's health checks, and the limit for the age of its newest data."""

from collections.abc import Iterator
from datetime import datetime

import dagster as dg

# Dagster's own cron parser, so that exactly the schedules that its daemon can run are accepted. It is not public.
from dagster._utils.schedules import is_valid_cron_string, schedule_execution_time_iterator

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import Problem

# The tag of runs that no user has launched: they do not start a stream that a user has stopped.
AUTOMATED_TAG = "glassflow/automated"
# A warning when this share of the greatest age is reached.
WARN_AT = 0.5


def schedule_problem(cron: str, path: str) -> Problem | None:
    """Return the problem of a schedule that Dagster's daemon cannot run, at the path of its setting; else None."""
    if is_valid_cron_string(cron):
        return None
    return Problem(path, f"{cron!r} is not a cron schedule; write one such as '*/15 * * * *'")


def next_tick(cron: str, after: float) -> float:
    """Return the first tick of a valid schedule after a time, both in seconds since 1970; schedules are in UTC."""
    ticks: Iterator[datetime] = schedule_execution_time_iterator(after, cron, "UTC")
    # The first tick of the iterator may be the time itself.
    return next(time for tick in ticks if (time := tick.timestamp()) > after)


def freshness_policy(config: PipelineConfig) -> dg.FreshnessPolicy | None:
    """Return the policy by which Dagster shows that a table has had no new data for too long (`checks.max_age`)."""
    max_age = config.checks.max_age
    if max_age is None:
        return None
    return dg.FreshnessPolicy.time_window(fail_window=max_age, warn_window=max_age * WARN_AT)
