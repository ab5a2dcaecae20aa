"""The check `unmatched_share`: the share of left events of a join without a match, within the last day.

Not of all time: the share of a pipeline that has run for months would hardly change on the day on which the right topic
falls silent, nor recover once that is fixed. A day includes the quiet hours of both topics.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from glassflow_dagster.checks.budget import connect_within_limits, explaining_limits
from glassflow_dagster.checks.limits import allowed_count
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.ledger import read_match_counts
from glassflow_dagster.stores.bookkeeping.tables import require_bookkeeping_tables

RECENT = timedelta(days=1)


@dataclass(frozen=True)
class UnmatchedReport:
    """The result of the check on the left events that were matched or given up within the last day."""

    passed: bool
    description: str
    figures: dict[str, int | float | str] = field(default_factory=dict)


def examine_unmatched(config: PipelineConfig) -> UnmatchedReport:
    """Compare a join's share of left events without a match with `checks.max_unmatched`, the share that is allowed.

    The events are those that the last day's batches decided, as the ledger table has counted them.

    Raises `LimitReached` when a limit ends a query, and another `GlassflowError` when ClickHouse cannot be queried.
    """
    with explaining_limits(config.checks):
        return _examine(config)


def _examine(config: PipelineConfig) -> UnmatchedReport:
    """Read the counts from the ledger, and return their evaluation."""
    database = config.sink.connection_params.database
    client = connect_within_limits(config)
    require_bookkeeping_tables(client, database)
    matched, unmatched, waiting = read_match_counts(client, database, config.pipeline_id, RECENT)
    return evaluate_unmatched(config.checks.max_unmatched, matched, unmatched, waiting)


def evaluate_unmatched(allowed: int | str | None, matched: int, unmatched: int, waiting: int) -> UnmatchedReport:
    """Return the report on the numbers of matched, unmatched and waiting left events.

    allowed: the greatest number of unmatched ones, or their share of the matched and unmatched; None for no limit.
    """
    decided = matched + unmatched
    share = unmatched / decided if decided else 0.0
    max_unmatched = None if allowed is None else allowed_count(allowed, decided)
    figures: dict[str, int | float | str] = {
        "unmatched": unmatched, "matched": matched, "unmatched_percent": round(100 * share, 2), "waiting": waiting,
    }  # fmt: skip
    if max_unmatched is not None:
        figures["allowed"] = max_unmatched
    passed = max_unmatched is None or unmatched <= max_unmatched
    if not decided:
        return UnmatchedReport(passed, "No left event was decided within the last day.", figures)
    text = f"{unmatched:,} of {decided:,} left events ({share:.1%}) that were decided within the last day had no match"
    over = "" if passed else f"; checks.max_unmatched allows {allowed}. Is the right topic complete and on time?"
    return UnmatchedReport(passed, f"{text}{over}" if over else f"{text}.", figures)
