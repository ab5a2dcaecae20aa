"""The rules of the check `keys_agree`: evaluation of the key differences of Kafka and the table. Pure functions.

The keys are compared by `exact/compare_keys.py`, which needs Spark.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from glassflow_dagster.checks.count_rules import Figures, figures_by_table, keeps_every_key, pluralize
from glassflow_dagster.checks.kafka_counts import Spans
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.ledger import BatchHistory
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals
from glassflow_dagster.stores.clickhouse.table import Table

# Engines that never change the values of a row.
_LEAVES_VALUES = ("MergeTree", "ReplacingMergeTree")


@dataclass(frozen=True)
class KeysReport:
    """The result of `keys_agree`; decided: false when nothing could be compared, and the description says why."""

    passed: bool
    decided: bool
    description: str
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class DifferingRows:
    """The number of differing rows of one kind, of their keys, and a few example keys."""

    rows: int = 0
    keys: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return a part of a sentence: `3 rows of 2 keys`."""
        return f"{pluralize(self.rows, 'row')} of {pluralize(self.keys, 'key')}"


@dataclass(frozen=True)
class KeyDifferences:
    """The differences of the table's rows and the rows expected from Kafka's records, by key.

    expected, rows: numbers of expected and of actual rows.
    lost: expected rows of keys without any row.
    missing: rows that keys lack, those of lost keys included.
    surplus: rows of a key beyond the expected number.
    changed: rows of keys with the expected number of rows but other values.
    """

    expected: int
    rows: int
    lost: DifferingRows = DifferingRows()
    missing: DifferingRows = DifferingRows()
    surplus: DifferingRows = DifferingRows()
    changed: DifferingRows = DifferingRows()


@dataclass(frozen=True)
class KeysContext:
    """The circumstances by which `evaluate_keys` decides whether a difference is allowed.

    rows_before: the table's rows before the pipeline first wrote to it.
    key_columns: the columns of the key; None when there are none.
    left_out: mapped columns whose values were not compared.
    """

    config: PipelineConfig
    table: Table
    totals: LedgerTotals
    rows_before: int
    key_columns: tuple[str, ...] | None
    left_out: tuple[str, ...]


# Why the rows of a table cannot be compared by key.
NO_KEY_COLUMNS = (
    "a key field has no column that keeps its values distinct and can be compared; map each key field to a String or "
    "an integer column"
)


def why_undecided(config: PipelineConfig, history: BatchHistory, spans: Spans) -> Iterator[str]:
    """Yield the reasons why the keys of a pipeline's tables cannot be compared."""
    dedup = config.dedup_of(config.source)
    if config.join:
        yield (
            "a join's rows depend on the events that waited in its state at each time; the counts are "
            "compared all the same"
        )
    elif dedup and dedup.clock == "event":
        yield "on the event clock the survivor of a key depends on the watermark of each batch, which is not recorded"
    if history.definitions - config.digests:
        yield (
            "batches ran with an earlier definition, so the current one does not determine the outcome of their records"
        )
    if spans.expired:
        yield f"retention removed {spans.expired:,} of the offsets that were read"
    if spans.unknown:
        yield f"Kafka lacks {spans.unknown:,} offsets that were read: the topic was recreated or truncated"
    if spans.uncovered or spans.repeated:
        yield "the ledger's batches have a gap or overlap; see counts_agree"


def evaluate_keys(differences: KeyDifferences, context: KeysContext) -> KeysReport:
    """Return the report on key differences: it passes when each difference is allowed.

    Differences of a kind that may be legitimate are not compared, and the description says why.
    """
    table, name = context.table, context.table.full_name
    missing, reason = _forbidden_missing(differences, context)
    reasons = [reason] if reason else []
    problems = [f"{name} lacks {missing}."] if missing.rows else []
    surplus_reasons = list(_surplus_reasons(context))
    reasons += surplus_reasons
    if differences.surplus.rows and not surplus_reasons:
        problems.append(f"{name} has {differences.surplus} that no record accounts for.")
    if table.family not in _LEAVES_VALUES:
        reasons.append(f"{table.engine} changes the values of rows")
    elif table.merges_rows and context.config.other_writers:
        reasons.append(f"the values of rows, which merges may have replaced, since {context.config.other_writers}")
    elif differences.changed.rows:
        problems.append(f"{name} has other values than those of the event to keep: {differences.changed}.")
    if context.left_out:
        reasons.append(f"the values of {', '.join(context.left_out)}")
    agreement = f"The records in Kafka account for {pluralize(differences.expected, 'row')}, and {name} has them."
    text = " ".join(problems) or agreement
    if reasons:
        text += f" Not compared: {'; '.join(reasons)}."
    return KeysReport(not problems, decided=True, description=text, figures=_figures(differences))


def together(reports: Mapping[str, KeysReport]) -> KeysReport:
    """Return the report on several tables: it passes when each one does. reports: by table, at least one.

    It is undecided where one table is, unless another one has failed.
    """
    if len(reports) == 1:
        return next(iter(reports.values()))
    texts = (
        report.description if report.decided else f"{table}: {report.description}" for table, report in reports.items()
    )
    return KeysReport(
        passed=all(report.passed for report in reports.values()),
        decided=all(report.decided for report in reports.values())
        or any(report.decided and not report.passed for report in reports.values()),
        description=" ".join(texts),
        figures=figures_by_table({table: report.figures for table, report in reports.items()}),
    )


def undecided(reasons: list[str]) -> KeysReport:
    """Return the report for keys that could not be compared; it has not passed."""
    return KeysReport(passed=False, decided=False, description=f"Cannot be decided: {'; '.join(reasons)}.")


def _forbidden_missing(differences: KeyDifferences, context: KeysContext) -> tuple[DifferingRows, str]:
    """Return the missing rows that are an error, and why other rows may be missing ('' when none may).

    None is an error when dead letters have expired or the table removes rows. Where it merges rows but keeps each key,
    only keys without any row are. Otherwise all of them are.
    """
    table, expired = context.table, context.totals.dead_letters_expired
    if expired:
        reason = f"missing rows, since {expired:,} dead letters have expired, possibly of rows that the server refused"
        return DifferingRows(), reason
    if not table.may_hold_fewer:
        return differences.missing, ""
    if keeps_every_key(table, context.key_columns):
        return differences.lost, f"missing rows of keys that have one, since {table.engine} merges them"
    return DifferingRows(), "missing rows, since the table's engine or TTL removes some"


def _surplus_reasons(context: KeysContext) -> Iterator[str]:
    """Yield why the table may have rows that no record in Kafka calls for."""
    surplus = "rows that no record accounts for, since"
    if context.config.other_writers:
        yield f"{surplus} {context.config.other_writers}"
    if context.rows_before:
        yield f"{surplus} {pluralize(context.rows_before, 'row')} existed before"
    if context.config.sink.delivery == "at_least_once":
        yield f"{surplus} a repeated batch may have duplicated them (sink.delivery: at_least_once)"


def _figures(differences: KeyDifferences) -> Figures:
    """Return the figures of the report, which Dagster shows as metadata."""
    kinds = {"missing": differences.missing, "surplus": differences.surplus, "changed": differences.changed}
    figures: Figures = {
        "expected_rows": differences.expected, "rows": differences.rows, "lost_keys": differences.lost.keys,
    }  # fmt: skip
    for name, kind in kinds.items():
        figures[f"{name}_rows"] = kind.rows
        if kind.examples:
            figures[f"{name}_examples"] = "; ".join(kind.examples)
    return figures
