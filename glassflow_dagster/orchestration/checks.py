"""The asset checks on a pipeline's table. The logic is in `verification`; this module returns it as Dagster's results.

None of the checks is blocking: the stream does not wait for a check, and downstream consumers read the table anyway.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from glassflow_dagster.bookkeeping.dead_letters import DeadLetter
from glassflow_dagster.clickhouse.errors import LimitReached
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.process import StreamState, StreamStatus
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.metadata import observed_stream
from glassflow_dagster.orchestration.values import shown_figures, shows_values
from glassflow_dagster.resources.stream_runner import StreamRunner
from glassflow_dagster.verification.counts import compare_counts
from glassflow_dagster.verification.dead_letters import examine_dead_letters
from glassflow_dagster.verification.duplicates import find_residual_duplicates
from glassflow_dagster.verification.keys import sources_of_unique_key
from glassflow_dagster.verification.unmatched import examine_unmatched
from glassflow_dagster.verification.verify import not_checked

COUNTS_AGREE = "counts_agree"
NO_RESIDUAL_DUPLICATES = "no_residual_duplicates"
STREAM_IS_LIVE = "stream_is_live"
DEAD_LETTERS = "dead_letters"
UNMATCHED_SHARE = "unmatched_share"

# Bytes of a record's value in the check's metadata, which Dagster keeps forever.
_VALUE_SHOWN = 200

_DESCRIPTIONS = {
    COUNTS_AGREE: (
        "Records in Kafka up to the committed offsets, less duplicates, filtered records and dead letters, equal the "
        "rows in ClickHouse. Queries both servers."
    ),
    NO_RESIDUAL_DUPLICATES: "No key has two rows that arrived within one deduplication window.",
    STREAM_IS_LIVE: "The stream's driver runs, and closes batches while records wait.",
    DEAD_LETTERS: "Dead letters that are neither replayed nor purged do not exceed checks.max_dead_letters.",
    UNMATCHED_SHARE: (
        "Of the left events that were decided within the last day, the share without a match does not exceed "
        "checks.max_unmatched."
    ),
}
_DESCRIPTIONS_OF_JOINS = _DESCRIPTIONS | {
    COUNTS_AGREE: (
        "Records in both topics up to the committed offsets, less duplicates, filtered and late records and dead "
        "letters, equal the events that reached the join, and the rows it made equal those in ClickHouse. Queries "
        "both servers."
    ),
    NO_RESIDUAL_DUPLICATES: (
        "No left event, or with match: all no pair of events, has two rows, as far as the rows' times show."
    ),
}


@dataclass(frozen=True)
class _Result:
    """The result of one check; `figures` become its metadata."""

    passed: bool
    description: str
    figures: dict[str, Any]
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR


def check_names(config: PipelineConfig) -> tuple[str, ...]:
    """Return the names of the checks for a pipeline: duplicates only with deduplication, unmatched only with a join."""
    always = (COUNTS_AGREE, STREAM_IS_LIVE, DEAD_LETTERS)
    keyed = (NO_RESIDUAL_DUPLICATES,) if sources_of_unique_key(config) else ()
    return (*always, *keyed, *((UNMATCHED_SHARE,) if config.join else ()))


def build_checks(pipeline: PipelineConfig, keys: AssetKeys) -> dg.AssetChecksDefinition:
    """Build the asset checks of the pipeline's table. Their run needs the resource `stream_runner`."""
    descriptions = _DESCRIPTIONS_OF_JOINS if pipeline.join else _DESCRIPTIONS

    @dg.multi_asset_check(
        name=f"{keys.pipeline}__checks",
        specs=[
            dg.AssetCheckSpec(name, asset=keys.table, description=descriptions[name]) for name in check_names(pipeline)
        ],
        can_subset=True,
    )
    def checks(context: dg.AssetCheckExecutionContext, stream_runner: StreamRunner) -> Iterator[dg.AssetCheckResult]:
        evaluations: dict[str, Callable[[], _Result]] = {
            COUNTS_AGREE: lambda: _counts_agree(pipeline, context.log.info),
            NO_RESIDUAL_DUPLICATES: lambda: _no_residual_duplicates(pipeline, context.log.info),
            DEAD_LETTERS: lambda: _dead_letters(pipeline),
            UNMATCHED_SHARE: lambda: _unmatched_share(pipeline),
            STREAM_IS_LIVE: lambda: _stream_is_live(stream_runner.status(pipeline.pipeline_id)),
        }
        for key in sorted(context.selected_asset_check_keys):
            result = _evaluate(evaluations[key.name])
            yield dg.AssetCheckResult(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=result.passed,
                severity=result.severity,
                description=result.description,
                metadata=result.figures,
            )

    return checks


def _evaluate(evaluation: Callable[[], _Result]) -> _Result:
    """Run a check; one that raises becomes a failed result with the reason as its description.

    A query that exceeded its limits is only a warning: it does not show that anything is wrong.
    """
    try:
        return evaluation()
    except LimitReached as limit:
        why = not_checked(limit)
        return _Result(passed=False, description=why, figures={"problem": why}, severity=dg.AssetCheckSeverity.WARN)
    except GlassflowError as error:
        return _Result(passed=False, description=str(error), figures={"problem": str(error)})


def _counts_agree(pipeline: PipelineConfig, report: Callable[[str], None]) -> _Result:
    found = compare_counts(pipeline, report)
    return _Result(found.passed, found.description, {"exact": found.exact, **found.figures})


def _no_residual_duplicates(pipeline: PipelineConfig, report: Callable[[str], None]) -> _Result:
    found = find_residual_duplicates(pipeline, report)
    severity = dg.AssetCheckSeverity.WARN if found.severity == "warn" else dg.AssetCheckSeverity.ERROR
    return _Result(found.passed, found.description, shown_figures(pipeline, found.figures), severity)


def _dead_letters(pipeline: PipelineConfig) -> _Result:
    """Check the number of dead letters. Severity WARN: the records are invalid, the pipeline works."""
    found = examine_dead_letters(pipeline)
    figures: dict[str, Any] = dict(found.figures)
    if found.causes:
        figures["reasons"] = dg.MetadataValue.table([dg.TableRecord(cause._asdict()) for cause in found.causes])
        to_row = _dead_letter_with_values if shows_values(pipeline) else _dead_letter
        figures["last"] = dg.MetadataValue.table([dg.TableRecord(to_row(letter)) for letter in found.last])
    return _Result(found.passed, found.description, figures, dg.AssetCheckSeverity.WARN)


def _unmatched_share(pipeline: PipelineConfig) -> _Result:
    """Check the share of left events without a match. Severity WARN: the pipeline works as it should."""
    found = examine_unmatched(pipeline)
    return _Result(found.passed, found.description, dict(found.figures), dg.AssetCheckSeverity.WARN)


def _dead_letter(letter: DeadLetter) -> dict[str, str | int]:
    """Return the table row of a dead letter without values of the record."""
    return {
        "record": f"{letter.topic}/{letter.partition}/{letter.offset}",
        "batch_time": datetime.fromtimestamp(letter.batch_time_ms / 1000, UTC).isoformat(timespec="seconds"),
        "stage": letter.stage,
        "attempt": letter.attempt,
    }


def _dead_letter_with_values(letter: DeadLetter) -> dict[str, str | int]:
    """Return the table row of a dead letter with the reason, which quotes values, and the beginning of the record."""
    value = (letter.value or b"")[:_VALUE_SHOWN].decode(errors="backslashreplace")
    return {**_dead_letter(letter), "reason": letter.reason, "value": value}


def _stream_is_live(status: StreamStatus) -> _Result:
    """Check that the stream is running or waiting for its topic. Severity WARN when a user has stopped it."""
    stopped_on_purpose = status.state is StreamState.STOPPED and not status.wanted
    text = f"{status.state.value}: {status.message}" if status.message else status.state.value
    return _Result(
        passed=status.state in (StreamState.RUNNING, StreamState.WAITING),
        description=f"{text}; materialize the table to start it" if stopped_on_purpose else text,
        figures=observed_stream(status),
        severity=dg.AssetCheckSeverity.WARN if stopped_on_purpose else dg.AssetCheckSeverity.ERROR,
    )
