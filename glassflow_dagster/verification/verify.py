"""What is checked of a pipeline's table, as the command line shows it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from glassflow_dagster.clickhouse.errors import LimitReached
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.verification.count_rules import CountsReport
from glassflow_dagster.verification.counts import compare_counts
from glassflow_dagster.verification.duplicates import DuplicatesReport, find_residual_duplicates
from glassflow_dagster.verification.key_rules import KeysReport
from glassflow_dagster.verification.unmatched import UnmatchedReport, examine_unmatched

T = TypeVar("T")


@dataclass(frozen=True)
class VerifyReport:
    """What the counts and the search for duplicates say of a pipeline, and of a join the share of unmatched events.

    `keys` is what the comparison of keys says, where it was asked for.
    """

    pipeline_id: str
    counts: CountsReport
    duplicates: DuplicatesReport
    unmatched: UnmatchedReport | None = None
    keys: KeysReport | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing is missing or doubled; a warning is no proof of either.

        What a limit has ended says nothing, and has not passed. Who asks for the comparison of keys wants a proof:
        without one, it has not passed.
        """
        doubled = not self.duplicates.passed and self.duplicates.severity == "error"
        passed = self.counts.passed and not doubled and not self.duplicates.limit_reached
        return passed and (self.keys is None or self.keys.passed)

    def as_dict(self) -> dict[str, Any]:
        """Give everything as plain values, ready for JSON."""
        found = asdict(self)
        for part in ("unmatched", "keys"):
            if found[part] is None:
                del found[part]
        return {"passed": self.passed, **found}

    def lines(self) -> list[str]:
        """Write the report for people: a verdict and a sentence for each, and the figures below."""
        lines = []
        parts: list[tuple[str, CountsReport | DuplicatesReport | UnmatchedReport | KeysReport, str]] = [
            ("counts_agree", self.counts, _mark_of_counts(self.counts)),
            ("no_residual_duplicates", self.duplicates, _mark(self.duplicates)),
        ]
        if self.unmatched:
            parts.append(("unmatched_share", self.unmatched, "ok" if self.unmatched.passed else "WARNING"))
        if self.keys:
            parts.append(("keys_agree", self.keys, _mark_of_keys(self.keys)))
        for name, found, mark in parts:
            lines.append(f"{mark:<7} {name}: {found.description}")
            lines.extend(f"        {key}: {_plain(value)}" for key, value in found.figures.items())
        return lines


def verify_pipeline(config: PipelineConfig, report: Callable[[str], None]) -> VerifyReport:
    """Check a pipeline's table; raises `GlassflowError` when Kafka, ClickHouse or the table is not there."""
    return VerifyReport(
        pipeline_id=config.pipeline_id,
        counts=_within_limits(lambda: compare_counts(config, report), _unknown_counts),
        duplicates=_within_limits(lambda: find_residual_duplicates(config, report), _unknown_duplicates),
        unmatched=_within_limits(lambda: examine_unmatched(config), _unknown_unmatched) if config.join else None,
    )


def _within_limits(ask: Callable[[], T], unknown: Callable[[str], T]) -> T:
    """Ask, or give the report that says which limit has ended it."""
    try:
        return ask()
    except LimitReached as limit:
        return unknown(not_checked(limit))


def not_checked(limit: LimitReached) -> str:
    """Say that a limit has ended a check."""
    return f"Not checked: {limit}."


def _unknown_counts(why: str) -> CountsReport:
    return CountsReport(passed=False, exact=False, description=why, limit_reached=True)


def _unknown_duplicates(why: str) -> DuplicatesReport:
    return DuplicatesReport(passed=False, severity="warn", description=why, limit_reached=True)


def _unknown_unmatched(why: str) -> UnmatchedReport:
    return UnmatchedReport(passed=False, description=why)


def _mark_of_counts(found: CountsReport) -> str:
    if found.limit_reached:
        return "UNKNOWN"
    return "ok" if found.passed else "FAILED"


def _mark(found: DuplicatesReport) -> str:
    if found.passed or found.limit_reached:
        return "ok" if found.passed else "UNKNOWN"
    return "WARNING" if found.severity == "warn" else "FAILED"


def _mark_of_keys(found: KeysReport) -> str:
    if not found.decided:
        return "UNKNOWN"
    return "ok" if found.passed else "FAILED"


def _plain(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
