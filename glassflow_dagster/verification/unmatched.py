"""How many left events of a join found no match: `unmatched_share`.

Of the last day, not of all time: the share of a pipeline that has run for months would hardly move on the day on which
the right topic falls silent, and hardly come back once that is fixed. A day has seen the quiet hours of both topics.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from glassflow_dagster.bookkeeping.ledger import read_decided
from glassflow_dagster.bookkeeping.tables import require_bookkeeping_tables
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.verification.budget import connect_within_limits, limits_told
from glassflow_dagster.verification.limits import limit

RECENT = timedelta(days=1)


@dataclass(frozen=True)
class UnmatchedReport:
    """What became of the left events that were decided lately, against what is allowed."""

    passed: bool
    description: str
    figures: dict[str, int | float | str] = field(default_factory=dict)


def examine_unmatched(config: PipelineConfig) -> UnmatchedReport:
    """Count a join's left events by the ledger.

    Raises `LimitReached` when a limit ends a query, and another `GlassflowError` when it cannot be asked.
    """
    with limits_told(config.checks):
        return _examine(config)


def _examine(config: PipelineConfig) -> UnmatchedReport:
    database = config.sink.connection_params.database
    client = connect_within_limits(config)
    require_bookkeeping_tables(client, database)
    matched, unmatched, waiting = read_decided(client, database, config.pipeline_id, RECENT)
    return judge_unmatched(config.checks.max_unmatched, matched, unmatched, waiting)


def judge_unmatched(allowed: int | str | None, matched: int, unmatched: int, waiting: int) -> UnmatchedReport:
    """Draw the conclusion; a pure function. `waiting` events are not decided yet and count for neither."""
    decided = matched + unmatched
    share = unmatched / decided if decided else 0.0
    most = None if allowed is None else limit(allowed, decided)
    figures: dict[str, int | float | str] = {
        "unmatched": unmatched, "matched": matched, "unmatched_percent": round(100 * share, 2), "waiting": waiting,
    }  # fmt: skip
    if most is not None:
        figures["allowed"] = most
    passed = most is None or unmatched <= most
    if not decided:
        return UnmatchedReport(passed, "No left event was decided within the last day.", figures)
    text = f"{unmatched:,} of {decided:,} left events ({share:.1%}) that were decided within the last day had no match"
    over = "" if passed else f"; checks.max_unmatched allows {allowed}. Is the right topic complete, and in time?"
    return UnmatchedReport(passed, f"{text}{over}" if over else f"{text}.", figures)
