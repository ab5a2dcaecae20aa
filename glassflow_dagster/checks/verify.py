"""All checks of `verify` on a pipeline's table, and their report for the command line."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from glassflow_dagster.checks.count_rules import CountsReport
from glassflow_dagster.checks.counts import compare_counts
from glassflow_dagster.checks.duplicates import DuplicatesReport, find_residual_duplicates
from glassflow_dagster.checks.key_rules import KeysReport
from glassflow_dagster.checks.unmatched import UnmatchedReport, examine_unmatched
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.clickhouse.errors import LimitReached

T = TypeVar("T")


@dataclass(frozen=True)
class VerifyReport:
    """The results of all checks of a pipeline.

    unmatched: of a join only.
    keys: with `verify --exact` only.
    """

    pipeline_id: str
    counts: CountsReport
    duplicates: DuplicatesReport
    unmatched: UnmatchedReport | None = None
    keys: KeysReport | None = None

    @property
    def passed(self) -> bool:
        """True when no check failed. Warnings pass; those that a limit ended, or before the first batch, do not.

        A comparison of keys that could not be made has not passed: whoever requests it wants a proof.
        """
        doubled = not self.duplicates.passed and self.duplicates.severity == "error"
        passed = self.counts.passed and not doubled and not self.duplicates.limit_reached
        return passed and (self.keys is None or self.keys.passed)

    def as_dict(self) -> dict[str, Any]:
        """Return all results as plain values for JSON, without checks that were not made."""
        results = asdict(self)
        for part in ("unmatched", "keys"):
            if results[part] is None:
                del results[part]
        return {"passed": self.passed, **results}

    def lines(self) -> list[str]:
        """Return the report as lines for people: for each check its result and description, then its figures."""
        lines = []
        parts: list[tuple[str, CountsReport | DuplicatesReport | UnmatchedReport | KeysReport, str]] = [
            ("counts_agree", self.counts, _mark_of_counts(self.counts)),
            ("no_residual_duplicates", self.duplicates, _mark_of_duplicates(self.duplicates)),
        ]
        if self.unmatched:
            parts.append(("unmatched_share", self.unmatched, "ok" if self.unmatched.passed else "WARNING"))
        if self.keys:
            parts.append(("keys_agree", self.keys, _mark_of_keys(self.keys)))
        for name, result, mark in parts:
            lines.append(f"{mark:<7} {name}: {result.description}")
            lines.extend(f"        {key}: {_plain(value)}" for key, value in result.figures.items())
        return lines


def verify_pipeline(config: PipelineConfig, report: Callable[[str], None]) -> VerifyReport:
    """Run all checks but the comparison of keys.

    Raises `GlassflowError` when Kafka or ClickHouse cannot be reached or the table is missing.
    """
    return VerifyReport(
        pipeline_id=config.pipeline_id,
        counts=_within_limits(lambda: compare_counts(config, report), _unchecked_counts),
        duplicates=_within_limits(lambda: find_residual_duplicates(config, report), _unchecked_duplicates),
        unmatched=_within_limits(lambda: examine_unmatched(config), _unchecked_unmatched) if config.join else None,
    )


def _within_limits(check: Callable[[], T], unchecked_report: Callable[[str], T]) -> T:
    """Return the report of `check`, or that of `unchecked_report` when a limit ends a query."""
    try:
        return check()
    except LimitReached as limit:
        return unchecked_report(not_checked(limit))


def not_checked(limit: LimitReached) -> str:
    """Return the description of a check that a limit has ended."""
    return f"Not checked: {limit}."


def _unchecked_counts(description: str) -> CountsReport:
    return CountsReport(passed=False, exact=False, description=description, limit_reached=True)


def _unchecked_duplicates(description: str) -> DuplicatesReport:
    return DuplicatesReport(passed=False, severity="warn", description=description, limit_reached=True)


def _unchecked_unmatched(description: str) -> UnmatchedReport:
    return UnmatchedReport(passed=False, description=description)


def _mark_of_counts(report: CountsReport) -> str:
    """Return the result in one word: UNKNOWN when nothing could be compared, else ok or FAILED."""
    if not report.is_decided:
        return "UNKNOWN"
    return "ok" if report.passed else "FAILED"


def _mark_of_duplicates(report: DuplicatesReport) -> str:
    """Return the result in one word: ok; UNKNOWN when a limit ended the check; else WARNING or FAILED."""
    if report.passed:
        return "ok"
    if report.limit_reached:
        return "UNKNOWN"
    return "WARNING" if report.severity == "warn" else "FAILED"


def _mark_of_keys(report: KeysReport) -> str:
    """Return the result in one word: UNKNOWN when nothing could be compared, else ok or FAILED."""
    if not report.decided:
        return "UNKNOWN"
    return "ok" if report.passed else "FAILED"


def _plain(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
