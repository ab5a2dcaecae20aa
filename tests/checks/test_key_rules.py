"""The meaning of differing keys, depending on table and definition; on plain values without a server."""

from dataclasses import replace
from typing import Any

import pytest

from glassflow_dagster.checks.kafka_counts import Spans
from glassflow_dagster.checks.key_rules import (
    DifferingRows,
    KeyDifferences,
    KeysContext,
    KeysReport,
    evaluate_keys,
    together,
    undecided,
    why_undecided,
)
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.ledger import BatchEntry, BatchHistory
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals
from glassflow_dagster.stores.clickhouse.table import Table
from tests.stores.clickhouse.definitions import sms_status

AGREEING = KeyDifferences(expected=5, rows=5)
MISSING = replace(AGREEING, lost=DifferingRows(1, 1, ("a",)), missing=DifferingRows(2, 2, ("a", "b")))
SURPLUS = replace(AGREEING, surplus=DifferingRows(1, 1, ("c",)))
CHANGED = replace(AGREEING, changed=DifferingRows(3, 3, ("d",)))
NO_LOSS = Spans(5, 0, 0, 0, 0)


def table(engine: str, *, ttl: bool = False, sorting_key: str = "sms_id") -> Table:
    return Table("d", "t", engine, engine, {}, rows=5, ttl=ttl, sorting_key=sorting_key)


def judge(
    differences: KeyDifferences, of: Table, config: PipelineConfig | None = None, rows_before: int = 0, **totals: Any
) -> KeysReport:
    summed = LedgerTotals(
        **{
            "batches": 1, "first_batch_time": None, "last_batch_time": None, "rows_before": rows_before,
            "outcomes": Outcomes(), "dead_letters_stored": 0, "ranges": (), **totals,
        }
    )  # fmt: skip
    return evaluate_keys(differences, KeysContext(config or sms_status(), of, summed, rows_before, ("sms_id",), ()))


def test_keys_that_agree_are_said_in_a_sentence() -> None:
    found = judge(AGREEING, table("MergeTree"))
    assert (found.passed, found.decided) == (True, True)
    assert found.description == "The records in Kafka account for 5 rows, and d.t has them."


@pytest.mark.parametrize(
    ("differences", "words"),
    [
        (MISSING, "d.t lacks 2 rows of 2 keys."),
        (SURPLUS, "d.t has 1 row of 1 key that no record accounts for."),
        (CHANGED, "d.t has other values than those of the event to keep: 3 rows of 3 keys."),
    ],
)
def test_each_difference_of_a_plain_table_is_a_failure(differences: KeyDifferences, words: str) -> None:
    found = judge(differences, table("MergeTree"))
    assert not found.passed
    assert found.description == words


def test_a_table_that_merges_rows_of_one_key_must_have_one_of_them_with_the_right_values() -> None:
    replacing = table("ReplacingMergeTree")
    merged = replace(AGREEING, missing=DifferingRows(2, 2))
    assert judge(merged, replacing).passed
    assert "Not compared: missing rows of keys that have one" in judge(merged, replacing).description
    assert "lacks 1 row of 1 key" in judge(MISSING, replacing).description
    assert not judge(SURPLUS, replacing).passed
    assert not judge(CHANGED, replacing).passed


@pytest.mark.parametrize(
    "of",
    [
        table("ReplacingMergeTree", sorting_key="status"),
        table("MergeTree", ttl=True),
        table("SummingMergeTree"),
        table("Null"),
    ],
)
def test_where_whole_keys_may_vanish_none_is_missed(of: Table) -> None:
    found = judge(MISSING, of)
    assert found.passed
    assert "Not compared: missing rows" in found.description


def test_an_engine_that_sums_values_up_has_others() -> None:
    assert judge(CHANGED, table("SummingMergeTree")).passed


def test_rows_of_others_are_no_surplus_and_a_missing_one_still_is_one() -> None:
    plain, twice = table("MergeTree"), sms_status(delivery="at_least_once")
    assert judge(SURPLUS, plain, twice).passed
    assert "may have duplicated them" in judge(SURPLUS, plain, twice).description
    assert judge(SURPLUS, plain, rows_before=4).passed
    assert not judge(MISSING, plain, twice).passed


def test_in_a_shared_table_a_merge_may_leave_the_row_of_another_pipeline() -> None:
    config = sms_status(shared_table=True)
    replacing, plain = table("ReplacingMergeTree"), table("MergeTree")
    found = judge(replace(CHANGED, surplus=SURPLUS.surplus), replacing, config)
    assert found.passed
    assert "the values of rows, which merges may have replaced, since other pipelines write" in found.description
    assert judge(SURPLUS, plain, config).passed
    assert not judge(CHANGED, plain, config).passed
    assert not judge(MISSING, replacing, config).passed


def test_expired_dead_letters_may_have_been_rows_that_the_server_refused() -> None:
    found = judge(MISSING, table("MergeTree"), dead_letters_expired=2)
    assert found.passed
    assert "2 dead letters have expired" in found.description


def test_what_cannot_be_decided_is_said_and_is_no_proof() -> None:
    config = sms_status()
    history = BatchHistory("i", (BatchEntry(3, 0, config.digest, 0, ()),))
    assert list(why_undecided(config, history, NO_LOSS)) == []
    older = replace(history, batches=(BatchEntry(2, 0, "other", 0, ()), *history.batches))
    assert "an earlier definition" in next(why_undecided(config, older, NO_LOSS))
    assert "retention removed 2" in next(why_undecided(config, history, replace(NO_LOSS, expired=2)))
    assert "Kafka lacks 2" in next(why_undecided(config, history, replace(NO_LOSS, unknown=2)))
    assert "gap or overlap" in next(why_undecided(config, history, replace(NO_LOSS, repeated=1)))
    found = undecided(["one reason", "another"])
    assert (found.passed, found.decided) == (False, False)
    assert found.description == "Cannot be decided: one reason; another."


def test_of_several_tables_one_that_fails_counts_more_than_one_that_is_undecided() -> None:
    good, bad = judge(AGREEING, table("MergeTree")), judge(MISSING, table("MergeTree"))
    unknown = undecided(["no key"])
    found = together({"d.t": good, "d.u": unknown})
    assert (found.passed, found.decided) == (False, False)
    assert found.description == f"{good.description} d.u: Cannot be decided: no key."
    found = together({"d.t": bad, "d.u": unknown})
    assert (found.passed, found.decided) == (False, True)
