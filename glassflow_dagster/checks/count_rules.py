"""The rules of the check `counts_agree`: comparison of the counts of Kafka, the ledger and the table. Pure functions.

The row count of a plain MergeTree table must be exact. Merging engines, a TTL and other writers legitimately change the
number of rows; then the bounds that still must hold are compared, and the report says why it is not exact.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from glassflow_dagster.checks.kafka_counts import KafkaCount, Proof
from glassflow_dagster.definition.model.sink import Delivery
from glassflow_dagster.stores.bookkeeping.ledger import TableRows
from glassflow_dagster.stores.bookkeeping.losses import LossReason
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals
from glassflow_dagster.stores.clickhouse.table import Table

Figures = dict[str, int | float | str]

_JOIN_FIGURES = (
    "taken", "accepted", "matched", "unmatched", "waiting", "null_keys", "joined", "joined_filtered",
    "joined_dead_letters",
)  # fmt: skip


@dataclass(frozen=True)
class CountsReport:
    """The result of `counts_agree`.

    exact: the number of rows had to agree exactly.
    limit_reached: nothing was compared, because a limit ended a query.
    records_wait: nothing was compared, because no batch has been written, although there are records.
    `passed` is false then.
    """

    passed: bool
    exact: bool
    description: str
    figures: Figures = field(default_factory=dict)
    limit_reached: bool = False
    records_wait: bool = False

    @property
    def is_decided(self) -> bool:
        """False when nothing was compared, so that what did not pass is not wrong either."""
        return not (self.limit_reached or self.records_wait)


@dataclass(frozen=True)
class Distinct:
    """The numbers of distinct keys and of rows in the table, counted in one query; None when not counted.

    reason: why they were not counted; '' when the pipeline has no deduplication.
    """

    keys: int | None = None
    rows: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Facts:
    """The input of `evaluate_counts` about one table.

    other_writers: why it may have rows of others (`PipelineConfig.other_writers`).
    rows: those that the table has.
    table_rows: those that the ledger has for it.
    joins: the pipeline has a join.
    window: the deduplication window; None without deduplication, on the event clock, and for a join.
    recent_written: rows that the batches of the last window wrote, which must have distinct keys.
    """

    table: Table
    other_writers: str
    joins: bool
    delivery: Delivery
    window: timedelta | None
    key_columns: tuple[str, ...] | None
    rows: int
    table_rows: TableRows
    totals: LedgerTotals
    kafka: KafkaCount
    distinct: Distinct
    recent_written: int

    @property
    def name(self) -> str:
        """The table's name, as `database.table`."""
        return self.table.full_name

    @property
    def may_hold_more(self) -> bool:
        """True when the table may have rows that the ledger does not count: other writers', or of repeated batches."""
        return bool(self.other_writers) or self.delivery == "at_least_once" or self.lost_from_open_batch

    @property
    def lost_from_open_batch(self) -> bool:
        """True when records of an in-flight batch were lost: the batch may have been written in part."""
        return any(loss.reason is LossReason.IN_FLIGHT for loss in self.totals.losses)

    @property
    def lost_waiting(self) -> int:
        """The number of waiting left events of a join that accepted losses discarded."""
        return sum(loss.waiting for loss in self.totals.losses)

    @property
    def left_out(self) -> int:
        """The number of records dropped before the table or the join: duplicates, late, filtered, dead letters."""
        return self.totals.outcomes.left_out

    @property
    def passed_on(self) -> int:
        """The number of records that became rows of the table, or with a join reached it."""
        return self.totals.outcomes.taken if self.joins else self.totals.outcomes.written

    @property
    def is_only_table(self) -> bool:
        """True when all rows that the ledger has went to this table."""
        return self.table_rows.written == self.totals.outcomes.written

    @property
    def rows_before(self) -> int:
        """The table's rows before the pipeline first wrote to it: all that it has, if no batch has written to it."""
        return self.rows if self.table_rows.before is None else self.table_rows.before

    @property
    def expected(self) -> int:
        """The number of rows that the table should have: by Kafka's count if that is exact, else by the ledger's.

        The number of rows that a join produces, that go to one of several tables, or that are events of one record, is
        known to the ledger alone.
        """
        outcomes = self.totals.outcomes
        one_each = outcomes.records == outcomes.read and not outcomes.copies
        by_kafka = self.kafka.exact and not self.joins and self.is_only_table and one_each
        written = self.kafka.records - self.left_out if by_kafka else self.table_rows.written
        return self.rows_before + written

    @property
    def within_one_window(self) -> bool:
        """True when all rows were written within one deduplication window, so that no key may have two rows."""
        first, last = self.totals.first_batch_time, self.totals.last_batch_time
        if self.window is None or first is None or last is None:
            return False
        return not self.rows_before and last - first < self.window


def evaluate_counts(tables: Sequence[Facts]) -> CountsReport:
    """Compare the counts of Kafka's records, the ledger's outcomes, each table's rows and its distinct keys.

    tables: the facts of each of the sink's tables, which differ in what is of the table. The report passes when no rule
    is violated. It is exact when the row counts had to equal the ledger's, and not only to lie within the bounds that
    hold for merging engines, a TTL or other writers.
    """
    facts = tables[0]
    problems = [*_kafka_problems(facts), *_ledger_problems(facts)]
    for of_table in tables:
        problems += [*_row_problems(of_table), *_key_problems(of_table)]
    reasons = [*(reason for of_table in tables for reason in _inexact_table(of_table)), *_why_not_exact(facts)]
    description = " ".join(problems) or f"{_account(tables)}."
    if reasons:
        description += f" Not exact: {'; '.join(reasons)}."
    not_counted = {_why_not_counted(of_table, tables): None for of_table in tables if of_table.distinct.reason}
    if not_counted:
        description += f" Keys not counted: {'; '.join(not_counted)}."
    one = len(tables) == 1 and not _rows_of_former_tables(tables)
    figures = _figures(facts) if one else _figures_of_many(tables)
    return CountsReport(passed=not problems, exact=not reasons, description=description, figures=figures)


def _account(tables: Sequence[Facts]) -> str:
    """Return what became of the records, and how many rows each table has, as text."""
    facts, gone = tables[0], _rows_of_former_tables(tables)
    if len(tables) == 1 and not gone:
        return f"{_sum(facts)}{_existed_before(facts)}; {facts.name} holds {pluralize(facts.rows, 'row')}"
    held = [
        f"{of_table.name} holds {pluralize(of_table.rows, 'row')}"
        + (f" ({of_table.rows_before:,} existed before)" if of_table.rows_before else "")
        for of_table in tables
    ]
    held += [
        f"{pluralize(rows, 'row')} went to {name}, which is no table of the sink any more"
        for name, rows in gone.items()
    ]
    return f"{_sum(facts)}; {', '.join(held)}"


def _rows_of_former_tables(tables: Sequence[Facts]) -> dict[str, int]:
    """Return the rows that went to tables of routes that the definition no longer has: database.table -> rows."""
    written = tables[0].totals.by_table.named_written
    names = {of_table.name for of_table in tables}
    return {name: rows for name, rows in written.items() if name not in names and rows}


def _why_not_counted(of_table: Facts, tables: Sequence[Facts]) -> str:
    """Return why the keys of a table were not counted, with its name where there are several."""
    return of_table.distinct.reason if len(tables) == 1 else f"of {of_table.name}, {of_table.distinct.reason}"


def rows_fit(table: Table, rows: int, expected: int, *, may_hold_more: bool) -> bool:
    """Return True when the row count is possible: merges and a TTL only remove rows, other writers only add some.

    Where both may happen, every count is possible.
    """
    if rows == expected or (table.may_hold_fewer and may_hold_more):
        return True
    return rows < expected if table.may_hold_fewer else rows > expected and may_hold_more


def _kafka_problems(facts: Facts) -> Iterator[str]:
    """Yield how the ledger's offsets and records contradict what Kafka has.

    When Kafka lacks offsets, nothing else is compared. The number of records read must be Kafka's where that is exact;
    between Kafka's and that plus the removed offsets where retention removed a part; and at most Kafka's upper bound
    where only a bound is known.
    """
    kafka, read = facts.kafka, facts.totals.outcomes.records
    spans = kafka.spans
    if spans.unknown:
        yield (
            f"Kafka lacks {pluralize(spans.unknown, 'offset')} that were read: the topic was recreated or truncated; "
            "give the pipeline a new pipeline_id and an empty table."
        )
        return
    if spans.uncovered:
        yield f"The ledger has {pluralize(spans.uncovered, 'offset')} between batches in no batch."
    if spans.repeated:
        yield f"The ledger has {pluralize(spans.repeated, 'offset')} in more than one batch."
    if kafka.exact and kafka.records != read:
        yield f"Kafka holds {pluralize(kafka.records, 'record')} up to the committed offsets, but {read:,} were read."
    if kafka.proof is Proof.PARTLY and not kafka.records <= read <= kafka.records + spans.expired:
        yield (
            f"Kafka still holds {pluralize(kafka.records, 'record')} and removed at most {spans.expired:,}, "
            f"but {read:,} were read."
        )
    if kafka.proof in (Proof.BOUND, Proof.COMPACTED) and read > kafka.records:
        yield f"{pluralize(read, 'record')} were read, more than the {kafka.records:,} offsets they came from."


def _ledger_problems(facts: Facts) -> Iterator[str]:
    """Yield how the ledger's own counts, and those of the dead letter table, do not add up."""
    outcomes = facts.totals.outcomes
    copies = 0 if facts.joins else outcomes.copies
    if outcomes.read + copies != facts.passed_on + facts.left_out:
        passed_on = f"{facts.passed_on:,} {'came to the join' if facts.joins else 'written'}"
        read = f"{outcomes.read:,} read{_and_copies(copies)}"
        yield f"The ledger does not add up: {read}, but {passed_on} and {facts.left_out:,} left out."
    if facts.joins:
        yield from _join_problems(outcomes, facts.lost_waiting)
    totals = facts.totals
    by_table = sum(totals.by_table.written.values())
    if by_table != outcomes.written:
        yield f"The ledger does not add up: {outcomes.written:,} written, but {by_table:,} to the single tables."
    if totals.dead_letters_stored + totals.dead_letters_purged + totals.dead_letters_expired != outcomes.dead_letters:
        gone = [
            f"{count:,} {word}"
            for word, count in (("purged", totals.dead_letters_purged), ("expired", totals.dead_letters_expired))
            if count
        ]
        yield (
            f"{pluralize(outcomes.dead_letters, 'dead letter')} in the ledger, but "
            f"{', '.join([f'{totals.dead_letters_stored:,} in glassflow_dead_letters', *gone])}."
        )


def _join_problems(o: Outcomes, lost: int) -> Iterator[str]:
    """Yield how the counts of a join do not add up. lost: waiting left events that were discarded."""
    decided = o.decided + lost
    if o.taken != decided:
        yield (
            f"The ledger does not add up: {o.taken:,} reached the join, but {o.accepted:,} right events, "
            f"{o.matched:,} matched, {o.unmatched:,} unmatched and {o.waiting:,} waiting left events are {decided:,}."
        )
    if o.joined + o.copies != o.written + o.joined_filtered + o.joined_dead_letters:
        made = f"{pluralize(o.joined, 'row')}{_and_copies(o.copies)}"
        yield (
            f"The ledger does not add up: the join made {made}, but {o.written:,} are written, "
            f"{o.joined_filtered:,} filtered and {o.joined_dead_letters:,} dead letters."
        )


def _row_problems(facts: Facts) -> Iterator[str]:
    """Yield the problem of a table with more or fewer rows than it may have."""
    if rows_fit(facts.table, facts.rows, facts.expected, may_hold_more=facts.may_hold_more):
        return
    difference = facts.rows - facts.expected
    many = "more" if difference > 0 else "fewer"
    yield (
        f"{facts.name} holds {pluralize(abs(difference), 'row')} {many} than it should: {facts.rows:,}, "
        f"but {_sum(facts) if facts.is_only_table else _sum_of_table(facts)}{_existed_before(facts)}, "
        f"which makes {facts.expected:,}."
    )


def _key_problems(facts: Facts) -> Iterator[str]:
    """Yield duplicate keys of a table that is younger than one window, and keys of the last window that are missing.

    Nothing when the keys were not counted or other writers may have written some of them.
    """
    keys, rows = facts.distinct.keys, facts.distinct.rows
    if keys is None or rows is None or facts.other_writers:
        return
    if facts.table.is_plain and facts.within_one_window and keys != rows and facts.delivery == "exactly_once":
        yield f"{facts.name} has {pluralize(rows, 'row')} but only {pluralize(keys, 'key')}, all within one window."
    if keeps_every_key(facts.table, facts.key_columns) and keys < facts.recent_written:
        yield (
            f"{facts.name} has {pluralize(keys, 'key')}, but {facts.recent_written:,} with different keys were written "
            "within the last window."
        )


def keeps_every_key(table: Table, key_columns: tuple[str, ...] | None) -> bool:
    """Return True when no key can disappear: rows merge only with rows of the same key, and one of them stays."""
    if table.ttl or key_columns is None:
        return False
    if table.is_plain:
        return True
    # ReplacingMergeTree(version, is_deleted): with the second argument a merge may remove all rows of a key.
    arguments = re.search(r"ReplacingMergeTree\(([^)]*)\)", table.engine_full)
    # The path and the replica name of a replicated engine are in quotes, and are no columns.
    columns = [name for name in (arguments[1].split(",") if arguments else []) if name.strip()[:1] not in ("", "'")]
    may_delete = len(columns) > 1
    sorted_by = {column.strip().strip("`") for column in table.sorting_key.split(",")}
    # Rows with the same sorting key have the same key only if the sorting key has all of its columns.
    return table.family == "ReplacingMergeTree" and not may_delete and set(key_columns) <= sorted_by


def _inexact_table(facts: Facts) -> list[str]:
    """Return the reasons that a table gives for its row count not to agree exactly."""
    reasons = []
    if facts.table.merges_rows:
        reasons.append(f"{facts.table.engine} merges rows with the same sorting key in the background")
    if facts.table.ttl:
        reasons.append("the table's TTL removes rows")
    if facts.table.may_hold_fewer and not (facts.table.merges_rows or facts.table.ttl):
        reasons.append(f"a {facts.table.engine} table may not keep the rows that are written to it")
    return reasons


def _why_not_exact(facts: Facts) -> list[str]:
    """Return the other reasons for which the row counts need not agree exactly, or rest on the ledger alone."""
    reasons = []
    if facts.delivery == "at_least_once":
        reasons.append("a repeated batch may have duplicated rows (sink.delivery: at_least_once)")
    if facts.other_writers:
        reasons.append(facts.other_writers)
    if facts.lost_from_open_batch:
        reasons.append("records of an in-flight batch were lost, and some may be rows (glassflow_losses)")
    if facts.kafka.proof is Proof.PARTLY:
        reasons.append("retention removed some of the records that were read, so their number is the ledger's")
    if facts.kafka.proof is Proof.BOUND:
        reasons.append("the topic is too large to be counted record by record, so its number is the ledger's")
    if facts.kafka.proof is Proof.COMPACTED:
        reasons.append("compaction removes records of the topic that were read, so their number is the ledger's")
    return reasons


def _sum(facts: Facts) -> str:
    """Return the sum that makes the expected rows, as text: `12 records in Kafka - 3 duplicates`.

    Of records that are many events: `40 events of 12 records in Kafka - 3 duplicates`.
    """
    outcomes = facts.totals.outcomes
    if facts.joins:
        return _sum_of_joined(facts)
    source, amount = ("in Kafka", facts.kafka.records) if facts.kafka.exact else ("read", outcomes.records)
    text = f"{pluralize(amount, 'record')} {source}"
    if outcomes.records != outcomes.read:
        text = f"{pluralize(outcomes.read, 'event')} of {text}"
    text += _and_copies(outcomes.copies)
    left_out = {
        "duplicate": outcomes.duplicates,
        "filtered": outcomes.filtered,
        "late": outcomes.late,
        "dead letter": outcomes.dead_letters,
    }
    for name, count in left_out.items():
        if count:
            text += f" - {pluralize(count, name) if name in ('duplicate', 'dead letter') else f'{count:,} {name}'}"
    return text


def _sum_of_table(facts: Facts) -> str:
    """Return the sum that makes the expected rows of one of several tables, as text."""
    return f"{pluralize(facts.table_rows.written, 'row')} written to it"


def _existed_before(facts: Facts) -> str:
    """Return the last part of a sum; '' without rows that existed before."""
    return f" + {pluralize(facts.rows_before, 'row')} that existed before" if facts.rows_before else ""


def _sum_of_joined(facts: Facts) -> str:
    """Return the sum that makes the expected rows of a join, with the events that they come from, as text."""
    o = facts.totals.outcomes
    text = (
        f"{pluralize(o.read, 'record')} read, {o.accepted:,} right events, {o.matched:,} left events matched, "
        f"{o.unmatched:,} unmatched, {o.waiting:,} waiting: {pluralize(o.joined, 'joined row')}"
        f"{_and_copies(o.copies)}"
    )
    if o.joined_filtered:
        text += f" - {o.joined_filtered:,} filtered"
    if o.joined_dead_letters:
        text += f" - {pluralize(o.joined_dead_letters, 'dead letter')}"
    return text


def _and_copies(copies: int) -> str:
    """Return the second part of a sum; '' where each event went to one table at most."""
    return f" + {copies:,} for further tables" if copies else ""


def pluralize(count: int, thing: str) -> str:
    """Return a number and a noun: `1 row`, `1,234 rows`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _figures(facts: Facts) -> Figures:
    """Return the figures of the report, which Dagster shows as metadata."""
    outcomes, spans = facts.totals.outcomes, facts.kafka.spans
    figures: Figures = {
        "kafka_records": facts.kafka.records,
        "kafka_proof": str(facts.kafka.proof),
        "read": outcomes.read,
        "duplicates": outcomes.duplicates,
        "filtered": outcomes.filtered,
        "late": outcomes.late,
        "dead_letters": outcomes.dead_letters,
        "dead_letters_stored": facts.totals.dead_letters_stored,
        "dead_letters_purged": facts.totals.dead_letters_purged,
        "dead_letters_expired": facts.totals.dead_letters_expired,
        "written": outcomes.written,
        "rows_before": facts.rows_before,
        "expected_rows": facts.expected,
        "rows": facts.rows,
        "difference": facts.rows - facts.expected,
        "batches": facts.totals.batches,
        "expired_offsets": spans.expired,
        "skipped_offsets": sum(read.skipped for read in facts.totals.ranges),
        "accepted_losses": len(facts.totals.losses),
    }
    if outcomes.records != outcomes.read:
        figures["records"] = outcomes.records
    if outcomes.copies:
        figures["copies"] = outcomes.copies
    if facts.joins:
        figures |= {name: getattr(outcomes, name) for name in _JOIN_FIGURES}
    if facts.distinct.keys is not None:
        figures["unique_keys"] = facts.distinct.keys
    elif facts.distinct.reason:
        figures["unique_keys_not_counted"] = facts.distinct.reason
    return figures


# The figures of one table, in `_figures`; all others are of the whole pipeline.
_OF_TABLE = ("rows_before", "expected_rows", "rows", "difference", "unique_keys", "unique_keys_not_counted")


def figures_by_table(figures: Mapping[str, Figures]) -> Figures:
    """Return the figures of several tables as one report has them: `database.table name` -> figure."""
    return {f"{table} {name}": figure for table, own in figures.items() for name, figure in own.items()}


def _figures_of_many(tables: Sequence[Facts]) -> Figures:
    """Return the figures of a sink with several tables: those of the pipeline, then those of each table."""
    of_pipeline = {name: value for name, value in _figures(tables[0]).items() if name not in _OF_TABLE}
    of_tables: dict[str, Figures] = {}
    for of_table in tables:
        own = _figures(of_table) | {"written": of_table.table_rows.written}
        of_tables[of_table.name] = {name: own[name] for name in ("written", *_OF_TABLE) if name in own}
    of_tables |= {name: {"written": rows} for name, rows in _rows_of_former_tables(tables).items()}
    return of_pipeline | figures_by_table(of_tables)
