"""What the keys of Kafka's records and those of the table say together: `keys_agree`. Pure: nothing is asked here.

How the keys were found is `reconciliation`'s affair, which needs Spark.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from glassflow_dagster.bookkeeping.ledger import BatchHistory
from glassflow_dagster.bookkeeping.totals import LedgerTotals
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.verification.count_rules import Figures, keeps_every_key, number
from glassflow_dagster.verification.kafka_counts import Spans

# Engines that leave a row's values as they were written, as long as it is there.
_LEAVES_VALUES = ("MergeTree", "ReplacingMergeTree")


@dataclass(frozen=True)
class KeysReport:
    """What the comparison of keys says; without `decided` there was none, and the description says why."""

    passed: bool
    decided: bool
    description: str
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """How many rows of a kind there are, of how many keys, and some of these keys, which no sentence names."""

    rows: int = 0
    keys: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Write it as a part of a sentence."""
        return f"{number(self.rows, 'row')} of {number(self.keys, 'key')}"


@dataclass(frozen=True)
class KeyDifferences:
    """How the table differs from what the records call for.

    lost: keys that have rows to have and have none. missing: rows that keys lack, those of lost ones included.
    surplus: rows that keys have beyond theirs. changed: rows of keys that have as many as they must, with other values.
    """

    expected: int
    rows: int
    lost: Found = Found()
    missing: Found = Found()
    surplus: Found = Found()
    changed: Found = Found()


@dataclass(frozen=True)
class Scope:
    """What the differences are judged by.

    key_columns: those of the key, None when there are none; left_out: mapped columns whose values were not compared.
    """

    config: PipelineConfig
    table: Table
    totals: LedgerTotals
    key_columns: tuple[str, ...] | None
    left_out: tuple[str, ...]


def why_undecided(
    config: PipelineConfig, history: BatchHistory, spans: Spans, columns: tuple[str, ...] | None
) -> Iterator[str]:
    """Yield the reasons for which nothing can be said of a pipeline's keys. columns: those of its key."""
    dedup = config.dedup_of(config.source)
    if config.join:
        yield "a join's rows depend on what waited in its state at each moment; the counts are compared all the same"
    elif dedup and dedup.clock == "event":
        yield "on the event clock the survivor of a key depends on the watermark of each batch, which is kept nowhere"
    elif columns is None:
        yield (
            "a key field has no column that keeps its values apart and can be compared; map each key field to a String "
            "or an integer column"
        )
    if history.definitions - {config.digest}:
        yield "batches were made by an earlier definition, so today's does not tell what became of their records"
    if spans.expired:
        yield f"retention removed {spans.expired:,} of the offsets that were read"
    if spans.unknown:
        yield f"Kafka lacks {spans.unknown:,} offsets that were read: the topic was recreated or cut"
    if spans.uncovered or spans.repeated:
        yield "the ledger's batches do not join without gap or overlap; see counts_agree"


def judge_keys(differences: KeyDifferences, scope: Scope) -> KeysReport:
    """Draw the conclusion."""
    table, name = scope.table, f"{scope.table.database}.{scope.table.name}"
    missing, lawful = _missing(differences, scope)
    reasons = [lawful] if lawful else []
    problems = [f"{name} lacks {missing}."] if missing.rows else []
    more = list(_why_more(scope))
    reasons += more
    if differences.surplus.rows and not more:
        problems.append(f"{name} has {differences.surplus} that no record calls for.")
    if table.family not in _LEAVES_VALUES:
        reasons.append(f"{table.engine} changes the values of rows")
    elif differences.changed.rows:
        problems.append(f"{name} has other values than those of the event that had to stay: {differences.changed}.")
    if scope.left_out:
        reasons.append(f"the values of {', '.join(scope.left_out)}")
    agreement = f"The records in Kafka call for {number(differences.expected, 'row')}, and {name} has them."
    text = " ".join(problems) or agreement
    if reasons:
        text += f" Not compared: {'; '.join(reasons)}."
    return KeysReport(not problems, decided=True, description=text, figures=_figures(differences))


def undecided(reasons: list[str]) -> KeysReport:
    """Say that there is nothing to say, which is no proof of anything."""
    return KeysReport(passed=False, decided=False, description=f"Cannot be decided: {'; '.join(reasons)}.")


def _missing(differences: KeyDifferences, scope: Scope) -> tuple[Found, str]:
    """Give the rows that must not be missing, and why others may."""
    table, expired = scope.table, scope.totals.dead_letters_expired
    if expired:
        why = f"missing rows, since {expired:,} dead letters have expired, maybe of rows that the server refused"
        return Found(), why
    if not table.may_hold_fewer:
        return differences.missing, ""
    if keeps_every_key(table, scope.key_columns):
        return differences.lost, f"missing rows of keys that have one, since {table.engine} merges them"
    return Found(), "missing rows, since the table's engine or TTL removes some"


def _why_more(scope: Scope) -> Iterator[str]:
    what = "rows that no record calls for, since"
    if scope.config.checks.other_writers:
        yield f"{what} others write to the table too (checks.other_writers)"
    if scope.totals.rows_before:
        yield f"{what} {number(scope.totals.rows_before, 'row')} were there before"
    if scope.config.sink.delivery == "at_least_once":
        yield f"{what} a batch that was repeated may have doubled them (sink.delivery: at_least_once)"


def _figures(found: KeyDifferences) -> Figures:
    kinds = {"missing": found.missing, "surplus": found.surplus, "changed": found.changed}
    figures: Figures = {"expected_rows": found.expected, "rows": found.rows, "lost_keys": found.lost.keys}
    for name, kind in kinds.items():
        figures[f"{name}_rows"] = kind.rows
        if kind.examples:
            figures[f"{name}_examples"] = "; ".join(kind.examples)
    return figures
