"""The asset checks on a pipeline's table. The logic is in `checks`; this module returns it as Dagster's results.

None of the checks is blocking: the stream does not wait for a check, and downstream consumers read the table anyway.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from glassflow_dagster.checks.counts import compare_counts
from glassflow_dagster.checks.duplicates import find_residual_duplicates
from glassflow_dagster.checks.keys import sources_of_unique_key
from glassflow_dagster.checks.unmatched import examine_unmatched
from glassflow_dagster.checks.verify import not_checked
from glassflow_dagster.checks.waiting_dead_letters import examine_dead_letters
from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.status import StreamState, StreamStatus
from glassflow_dagster.definition.added_fields import with_added_fields
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.metadata import observed_stream
from glassflow_dagster.orchestration.options import CheckOptions
from glassflow_dagster.orchestration.values import shown_figures, shows_values
from glassflow_dagster.runtime.safe_text import markdown, one_line, printable_values
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DeadLetter
from glassflow_dagster.stores.bookkeeping.schema_changes import (
    Change,
    added_fields,
    read_schema_changes,
    undecided_changes,
)
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import LimitReached

COUNTS_AGREE = "counts_agree"
NO_RESIDUAL_DUPLICATES = "no_residual_duplicates"
STREAM_IS_LIVE = "stream_is_live"
DEAD_LETTERS = "dead_letters"
UNMATCHED_SHARE = "unmatched_share"
SCHEMA_CHANGES_TAKEN = "schema_changes_taken"

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
    SCHEMA_CHANGES_TAKEN: "Every change of the events' schema was taken up (`schema_evolution`).",
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


# All checks, of which a pipeline has those that apply to it.
ALL_CHECKS = (COUNTS_AGREE, NO_RESIDUAL_DUPLICATES, STREAM_IS_LIVE, DEAD_LETTERS, UNMATCHED_SHARE, SCHEMA_CHANGES_TAKEN)


def check_names(config: PipelineConfig) -> tuple[str, ...]:
    """Return the names of the checks for a pipeline.

    Duplicates only where a key is unique in the table, by deduplication or a join; unmatched events only with a join;
    changes of the schema only where they are not ignored.
    """
    where_it_applies = {UNMATCHED_SHARE: config.join is not None, SCHEMA_CHANGES_TAKEN: _evolves(config)}
    always_checked = (COUNTS_AGREE, STREAM_IS_LIVE, DEAD_LETTERS)
    with_unique_key = (NO_RESIDUAL_DUPLICATES,) if sources_of_unique_key(config) else ()
    return (*always_checked, *with_unique_key, *(name for name, applies in where_it_applies.items() if applies))


def _evolves(config: PipelineConfig) -> bool:
    return config.schema_evolution != "ignore"


def check_specs(
    pipeline: PipelineConfig, keys: AssetKeys, options: Mapping[str, CheckOptions]
) -> list[dg.AssetCheckSpec]:
    """Return the specs of the checks of the pipeline's table, without those that are switched off."""
    descriptions = _DESCRIPTIONS_OF_JOINS if pipeline.join else _DESCRIPTIONS
    return [
        dg.AssetCheckSpec(name, asset=keys.table, description=descriptions[name])
        for name in check_names(pipeline)
        if options.get(name, CheckOptions()).enabled
    ]


def run_checks(
    pipeline: PipelineConfig,
    selected: AbstractSet[dg.AssetCheckKey],
    runner: StreamRunner,
    options: Mapping[str, CheckOptions],
    report: Callable[[str], None],
) -> Iterator[dg.AssetCheckResult]:
    """Run the selected checks of the pipeline's table."""
    evaluations: dict[str, Callable[[], _Result]] = {
        COUNTS_AGREE: lambda: _counts_agree(pipeline, report),
        NO_RESIDUAL_DUPLICATES: lambda: _no_residual_duplicates(pipeline, report),
        DEAD_LETTERS: lambda: _dead_letters(pipeline),
        UNMATCHED_SHARE: lambda: _unmatched_share(pipeline),
        SCHEMA_CHANGES_TAKEN: lambda: _schema_changes_taken(pipeline),
        STREAM_IS_LIVE: lambda: _stream_is_live(runner.status(pipeline)),
    }
    for key in sorted(selected):
        result = _evaluate(evaluations[key.name])
        yield dg.AssetCheckResult(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=result.passed,
            severity=options.get(key.name, CheckOptions()).severity or result.severity,
            description=markdown(result.description),
            metadata=printable_values(result.figures),
        )


def _evaluate(evaluation: Callable[[], _Result]) -> _Result:
    """Run a check; one that raises becomes a failed result with the reason as its description.

    A query that exceeded its limits is only a warning: it does not show that anything is wrong.
    """
    try:
        return evaluation()
    except LimitReached as limit:
        reason = not_checked(limit)
        return _Result(
            passed=False, description=reason, figures={"problem": reason}, severity=dg.AssetCheckSeverity.WARN
        )
    except GlassflowError as error:
        return _Result(passed=False, description=str(error), figures={"problem": str(error)})


def _counts_agree(pipeline: PipelineConfig, report: Callable[[str], None]) -> _Result:
    """Check that the counts in Kafka and ClickHouse agree. Severity WARN where they could not be compared yet."""
    comparison = compare_counts(pipeline, report)
    severity = dg.AssetCheckSeverity.ERROR if comparison.is_decided else dg.AssetCheckSeverity.WARN
    figures = {"exact": comparison.exact, **comparison.figures}
    return _Result(comparison.passed, comparison.description, figures, severity)


def _schema_changes_taken(pipeline: PipelineConfig) -> _Result:
    """Check that no change of the schema was refused or has stopped the pipeline, under the current definition."""
    client = connect(pipeline.sink.connection_params)
    changes = read_schema_changes(client, pipeline.sink.connection_params.database, pipeline.pipeline_id)
    added = [change.field for change in changes if change.change is Change.ADDED]
    open_changes = undecided_changes(changes, with_added_fields(pipeline, added_fields(changes)))
    told = "; ".join(f"{change.field}: {change.reason or 'is new, and stops the pipeline'}" for change in open_changes)
    return _Result(
        passed=not open_changes,
        description=told or f"{len(added):,} fields were taken up, and no change is left.",
        figures={"added": ", ".join(added), "open": len(open_changes)},
        severity=dg.AssetCheckSeverity.WARN,
    )


def _no_residual_duplicates(pipeline: PipelineConfig, report: Callable[[str], None]) -> _Result:
    """Check that no duplicates are left in the table. Severity WARN where `find_residual_duplicates` says so."""
    search = find_residual_duplicates(pipeline, report)
    severity = dg.AssetCheckSeverity.WARN if search.severity == "warn" else dg.AssetCheckSeverity.ERROR
    return _Result(search.passed, search.description, shown_figures(pipeline, search.figures), severity)


def _dead_letters(pipeline: PipelineConfig) -> _Result:
    """Check the number of dead letters. Severity WARN: the records are invalid, the pipeline works.

    The reasons and the last dead letters are tables in the metadata; values of records only where they may be shown.
    """
    outcome = examine_dead_letters(pipeline)
    figures: dict[str, Any] = dict(outcome.figures)
    if outcome.causes:
        figures["reasons"] = dg.MetadataValue.table(
            [dg.TableRecord(printable_values(cause._asdict())) for cause in outcome.causes]
        )
        to_row = _dead_letter_with_values if shows_values(pipeline) else _dead_letter
        figures["last"] = dg.MetadataValue.table([dg.TableRecord(to_row(dead_letter)) for dead_letter in outcome.last])
    return _Result(outcome.passed, outcome.description, figures, dg.AssetCheckSeverity.WARN)


def _unmatched_share(pipeline: PipelineConfig) -> _Result:
    """Check the share of left events without a match. Severity WARN: the pipeline works as it should."""
    outcome = examine_unmatched(pipeline)
    return _Result(outcome.passed, outcome.description, dict(outcome.figures), dg.AssetCheckSeverity.WARN)


def _dead_letter(dead_letter: DeadLetter) -> dict[str, str | int]:
    """Return the table row of a dead letter without values of the record."""
    return {
        "record": dead_letter.position,
        "batch_time": datetime.fromtimestamp(dead_letter.batch_time_ms / 1000, UTC).isoformat(timespec="seconds"),
        "stage": dead_letter.stage,
        "attempt": dead_letter.attempt,
    }


def _dead_letter_with_values(dead_letter: DeadLetter) -> dict[str, str | int]:
    """Return the table row of a dead letter with the reason, which quotes values, and the beginning of the record."""
    value = (dead_letter.value or b"")[:_VALUE_SHOWN].decode(errors="backslashreplace")
    return {**_dead_letter(dead_letter), "reason": one_line(dead_letter.reason), "value": one_line(value)}


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
