"""The rules for counts, on plain values without a server."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glassflow_dagster.checks.count_rules import CountsReport, Distinct, Facts, evaluate_counts, rows_fit
from glassflow_dagster.checks.kafka_counts import KafkaCount, Proof, Spans, measure
from glassflow_dagster.stores.bookkeeping.ledger import RowsByTable
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals, ReadRange
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.kafka.topics import Offsets

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NO_LOSS = Spans(total=100, expired=0, unknown=0, uncovered=0, repeated=0)


def table(engine: str = "MergeTree", *, ttl: bool = False, sorting_key: str = "id", full: str = "") -> Table:
    return Table("d", "t", engine, full or engine, {}, rows=0, ttl=ttl, sorting_key=sorting_key)


def totals(**changes: Any) -> LedgerTotals:
    outcomes = Outcomes(read=100, records=100, written=85, duplicates=10, filtered=2, late=1, dead_letters=2)
    plain = LedgerTotals(
        batches=4,
        first_batch_time=NOW - timedelta(minutes=2),
        last_batch_time=NOW,
        rows_before=0,
        outcomes=outcomes,
        dead_letters_stored=2,
        ranges=(),
    )
    changed = replace(plain, **changes)
    by_table = RowsByTable({"": changed.outcomes.written}, {"": changed.rows_before})
    return replace(changed, by_table=changes.get("by_table", by_table))


def facts(**changes: Any) -> Facts:
    """Return figures that agree: 100 records in Kafka, 85 rows, all within one window."""
    of_ledger: LedgerTotals = changes.get("totals", totals())
    agreeing = Facts(
        table_rows=of_ledger.by_table.of("d.t", own=True),
        table=table(),
        other_writers="",
        joins=False,
        delivery="exactly_once",
        window=timedelta(minutes=5),
        key_columns=("id",),
        rows=85,
        totals=totals(),
        kafka=KafkaCount(100, Proof.OFFSETS, NO_LOSS),
        distinct=Distinct(keys=85, rows=85),
        recent_written=85,
    )
    return replace(agreeing, **changes)


def counts_report(**changes: Any) -> CountsReport:
    return evaluate_counts([facts(**changes)])


def of_tables(rows: tuple[int, int]) -> CountsReport:
    """Return the report on two tables, of which the ledger has 80 rows and 5 rows, and that had 0 and 3 before."""
    by_table = RowsByTable({"d.t": 80, "d.u": 5}, {"d.t": 0, "d.u": 3})
    both = totals(by_table=by_table)
    tables = [table(), replace(table(), name="u")]
    return evaluate_counts([
        facts(table=of, table_rows=by_table.of(f"d.{of.name}", own=of.name == "t"), totals=both, rows=count,
              distinct=Distinct(), recent_written=0)
        for of, count in zip(tables, rows, strict=True)
    ])  # fmt: skip


def test_each_of_several_tables_must_have_its_rows() -> None:
    found = of_tables((80, 8))
    assert found.passed
    assert found.description.endswith("dead letters; d.t holds 80 rows, d.u holds 8 rows (3 existed before).")
    assert (found.figures["d.u written"], found.figures["d.u rows"], found.figures["d.u rows_before"]) == (5, 8, 3)
    # The sum is right.
    swapped = of_tables((81, 7))
    assert not swapped.passed
    assert "d.t holds 1 row more than it should: 81, but 80 rows written to it, which makes 80." in swapped.description
    assert "d.u holds 1 row fewer than it should: 7, but 5 rows written to it + 3 rows that" in swapped.description


def test_rows_of_tables_that_the_sink_has_no_more_are_told() -> None:
    of_ledger = totals(by_table=RowsByTable({"d.t": 80, "d.gone": 5}, {"d.t": 0, "d.gone": 0}))
    found = counts_report(totals=of_ledger, table_rows=of_ledger.by_table.of("d.t", own=True), rows=80)
    assert found.passed
    assert "; d.t holds 80 rows, 5 rows went to d.gone, which is no table of the sink any more." in found.description
    assert (found.figures["d.t rows"], found.figures["d.gone written"]) == (80, 5)


def test_the_reason_for_keys_that_are_not_counted_names_its_table() -> None:
    tables = [table(), replace(table(), name="u")]
    by_table = RowsByTable({"d.t": 80, "d.u": 5}, {"d.t": 0, "d.u": 0})
    reasons = (Distinct(keys=80, rows=80), Distinct(reason="a key field has no column"))
    found = evaluate_counts([
        facts(table=of, table_rows=by_table.of(f"d.{of.name}", own=of.name == "t"), totals=totals(by_table=by_table),
              rows=rows, distinct=distinct, recent_written=0)
        for of, distinct, rows in zip(tables, reasons, (80, 5), strict=True)
    ])  # fmt: skip
    assert found.description.endswith("Keys not counted: of d.u, a key field has no column.")


def test_a_table_that_no_batch_could_write_to_yet_has_nothing_to_compare() -> None:
    assert RowsByTable({"": 7}, {"": 1}).of("d.new", own=False).expected(12) == 12
    assert RowsByTable({"": 7}, {"": 1}).of("d.t", own=True).expected(0) == 8
    both = RowsByTable({"": 7}, {"": 1}) + RowsByTable({"d.t": 2, "d.new": 3}, {"d.t": 1, "d.new": 12})
    assert (both.of("d.t", own=True).expected(0), both.of("d.new", own=False).expected(0)) == (10, 15)


def test_rows_by_table_must_make_the_rows_that_were_written() -> None:
    found = counts_report(totals=totals(by_table=RowsByTable({"": 84}, {"": 0})))
    assert "The ledger does not add up: 85 written, but 84 to the single tables." in found.description


def test_counts_that_agree_are_said_as_a_sum() -> None:
    found = counts_report()
    assert (found.passed, found.exact) == (True, True)
    assert found.description == (
        "100 records in Kafka - 10 duplicates - 2 filtered - 1 late - 2 dead letters; d.t holds 85 rows."
    )
    assert found.figures["expected_rows"] == found.figures["rows"] == found.figures["unique_keys"] == 85
    assert found.figures["difference"] == 0


@pytest.mark.parametrize(("rows", "words"), [(84, "1 row fewer"), (86, "1 row more"), (0, "85 rows fewer")])
def test_a_plain_table_agrees_to_the_row(rows: int, words: str) -> None:
    found = counts_report(rows=rows, distinct=Distinct())
    assert not found.passed
    assert words in found.description


def test_rows_that_were_there_before_count() -> None:
    assert counts_report(rows=90, totals=totals(rows_before=5)).passed
    assert not counts_report(totals=totals(rows_before=5)).passed


def test_records_in_kafka_that_nobody_read_are_missing() -> None:
    found = counts_report(kafka=KafkaCount(101, Proof.COUNTED, replace(NO_LOSS, total=120)))
    assert not found.passed
    assert "Kafka holds 101 records up to the committed offsets, but 100 were read" in found.description


def test_a_ledger_that_does_not_add_up_fails() -> None:
    wrong = replace(totals().outcomes, read=101)
    assert "does not add up" in counts_report(totals=totals(outcomes=wrong)).description


def test_dead_letters_of_the_ledger_must_be_in_their_table() -> None:
    found = counts_report(totals=totals(dead_letters_stored=1))
    assert not found.passed
    assert "2 dead letters in the ledger, but 1 in" in found.description
    assert counts_report(totals=totals(dead_letters_stored=0, dead_letters_purged=1, dead_letters_expired=1)).passed
    found = counts_report(totals=totals(dead_letters_stored=0, dead_letters_purged=1))
    assert "2 dead letters in the ledger, but 0 in glassflow_dead_letters, 1 purged" in found.description


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"uncovered": 3}, "3 offsets between batches in no batch"),
        ({"repeated": 1}, "1 offset in more than one batch"),
        ({"unknown": 7}, "Kafka lacks 7 offsets"),
    ],
)
def test_offsets_that_do_not_join_up_fail(change: dict[str, int], words: str) -> None:
    found = counts_report(kafka=KafkaCount(100, Proof.OFFSETS, replace(NO_LOSS, **change)))
    assert not found.passed
    assert words in found.description


def test_doubled_keys_within_one_window_fail_even_when_the_rows_agree() -> None:
    found = counts_report(distinct=Distinct(keys=84, rows=85))
    assert not found.passed
    assert "85 rows but only 84 keys" in found.description


def test_a_key_may_come_again_after_its_window() -> None:
    long_ago = totals(first_batch_time=NOW - timedelta(hours=1))
    assert counts_report(totals=long_ago, distinct=Distinct(keys=60, rows=85), recent_written=20).passed


def test_keys_written_within_the_last_window_are_all_there() -> None:
    long_ago = totals(first_batch_time=NOW - timedelta(hours=1))
    found = counts_report(totals=long_ago, distinct=Distinct(keys=60, rows=85), recent_written=61)
    assert not found.passed
    assert "60 keys, but 61 with different keys" in found.description


def test_a_replacing_table_may_hold_fewer_rows_and_says_why_it_is_not_exact() -> None:
    replacing = table("ReplacingMergeTree", full="ReplacingMergeTree(ingested_at) ORDER BY id")
    found = counts_report(table=replacing, rows=85)
    assert (found.passed, found.exact) == (True, False)
    assert "ReplacingMergeTree merges rows" in found.description
    assert counts_report(table=replacing, rows=80, distinct=Distinct(keys=85, rows=85)).passed


def test_a_replacing_table_may_not_hold_more_rows_or_lose_a_key() -> None:
    replacing = table("ReplacingMergeTree", full="ReplacingMergeTree(ingested_at) ORDER BY id")
    assert "1 row more" in counts_report(table=replacing, rows=86).description
    assert "84 keys, but 85" in counts_report(table=replacing, distinct=Distinct(keys=84, rows=85)).description


@pytest.mark.parametrize(
    "lossy",
    [
        table("ReplacingMergeTree", sorting_key="status"),
        table("ReplacingMergeTree", full="ReplacingMergeTree(version, is_deleted) ORDER BY id"),
        table("CollapsingMergeTree"),
        table(ttl=True),
    ],
    ids=["another sorting key", "deleted rows", "collapsing", "ttl"],
)
def test_keys_that_may_vanish_are_not_missed(lossy: Table) -> None:
    found = counts_report(table=lossy, rows=50, distinct=Distinct(keys=50, rows=50))
    assert (found.passed, found.exact) == (True, False)


def test_other_writers_may_only_add_rows() -> None:
    assert counts_report(other_writers="others write", rows=99, distinct=Distinct(keys=90, rows=99)).passed
    assert not counts_report(other_writers="others write", rows=84).passed
    assert not counts_report(other_writers="others write").exact


def test_after_retention_the_ledger_stands_for_what_is_gone() -> None:
    spans = replace(NO_LOSS, expired=40)
    found = counts_report(kafka=KafkaCount(60, Proof.PARTLY, spans))
    assert (found.passed, found.exact) == (True, False)
    assert "retention" in found.description
    assert not counts_report(kafka=KafkaCount(59, Proof.PARTLY, spans)).passed


def test_of_a_compacted_topic_the_ledger_stands_for_what_is_gone() -> None:
    found = counts_report(kafka=KafkaCount(130, Proof.COMPACTED, replace(NO_LOSS, total=130)))
    assert (found.passed, found.exact) == (True, False)
    assert "compaction removes records of the topic that were read" in found.description
    assert not counts_report(kafka=KafkaCount(99, Proof.COMPACTED, replace(NO_LOSS, total=99))).passed


def test_more_records_than_offsets_were_never_there() -> None:
    assert not counts_report(kafka=KafkaCount(99, Proof.BOUND, NO_LOSS)).passed
    assert counts_report(kafka=KafkaCount(120, Proof.BOUND, NO_LOSS)).passed


@pytest.mark.parametrize(
    ("engine", "may_hold_more", "rows", "fits"),
    [
        ("MergeTree", False, 10, True),
        ("MergeTree", False, 11, False),
        ("MergeTree", True, 11, True),
        ("MergeTree", True, 9, False),
        ("ReplacingMergeTree", False, 9, True),
        ("ReplacingMergeTree", False, 11, False),
        ("ReplacingMergeTree", True, 11, True),
        ("Log", False, 9, False),
        ("Log", True, 11, True),
        ("Log", True, 9, False),
        ("Null", True, 0, True),
        ("Distributed", False, 9, True),
        ("Distributed", False, 11, False),
    ],
)
def test_what_can_change_the_rows_decides_how_many_are_possible(
    engine: str, may_hold_more: bool, rows: int, fits: bool
) -> None:
    assert rows_fit(table(engine), rows, 10, may_hold_more=may_hold_more) is fits


def test_doubled_rows_are_no_mistake_where_they_are_allowed_and_nothing_is_called_exact() -> None:
    doubled = {"rows": 87, "distinct": Distinct(keys=85, rows=87)}
    assert not counts_report(**doubled).passed
    found = counts_report(**doubled, delivery="at_least_once")
    assert (found.passed, found.exact) == (True, False)
    assert found.description.endswith(
        "Not exact: a repeated batch may have duplicated rows (sink.delivery: at_least_once)."
    )
    assert not counts_report(rows=84, distinct=Distinct(), delivery="at_least_once").passed


def test_ranges_are_held_against_what_the_brokers_still_have() -> None:
    ranges = [
        ReadRange("i", "a", 0, first=10, until=20, covered=10),
        ReadRange("i", "a", 1, first=0, until=30, covered=25),
        ReadRange("i", "b", 0, first=0, until=5, covered=6),
        ReadRange("i", "b", 1, first=0, until=2, covered=2),
    ]
    known = {"a": {0: Offsets(14, 99), 1: Offsets(0, 30)}, "b": {0: Offsets(0, 3)}}
    assert measure(ranges, known) == Spans(total=47, expired=4, unknown=2 + 2, uncovered=5, repeated=1)


def test_records_of_many_events_are_compared_with_kafka_as_records() -> None:
    outcomes = Outcomes(read=100, records=12, written=85, duplicates=10, filtered=2, late=1, dead_letters=2)
    kafka = KafkaCount(records=12, proof=Proof.OFFSETS, spans=replace(NO_LOSS, total=12))
    report = counts_report(totals=totals(outcomes=outcomes), kafka=kafka)
    assert report.passed
    assert report.description.startswith(
        "100 events of 12 records in Kafka - 10 duplicates - 2 filtered - 1 late - 2 dead"
    )
    assert (report.figures["records"], report.figures["kafka_records"], report.figures["read"]) == (12, 12, 100)
    missing = counts_report(totals=totals(outcomes=outcomes), kafka=replace(kafka, records=13))
    assert missing.description == "Kafka holds 13 records up to the committed offsets, but 12 were read."
