"""What is checked of a pipeline's table, as the command line shows it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.verification.counts import compare_counts
from glassflow_dagster.verification.duplicates import DuplicatesReport, find_residual_duplicates
from glassflow_dagster.verification.key_verdict import KeysReport
from glassflow_dagster.verification.unmatched import UnmatchedReport, examine_unmatched
from glassflow_dagster.verification.verdict import CountsReport


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

        Who asks for the comparison of keys wants a proof: without one, it has not passed.
        """
        doubled = not self.duplicates.passed and self.duplicates.severity == "error"
        return self.counts.passed and not doubled and (self.keys is None or self.keys.passed)

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
            ("counts_agree", self.counts, "ok" if self.counts.passed else "FAILED"),
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
        counts=compare_counts(config, report),
        duplicates=find_residual_duplicates(config, report),
        unmatched=examine_unmatched(config) if config.join else None,
    )


def _mark(found: DuplicatesReport) -> str:
    if found.passed:
        return "ok"
    return "WARNING" if found.severity == "warn" else "FAILED"


def _mark_of_keys(found: KeysReport) -> str:
    if not found.decided:
        return "UNKNOWN"
    return "ok" if found.passed else "FAILED"


def _plain(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
