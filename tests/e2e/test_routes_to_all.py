"""A pipeline whose events go to each table that takes them (`sink.match: all`): into all of these tables, or none."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.recovery.acceptance import accept_loss
from glassflow_dagster.driver.recovery.rebuild import rebuild_checkpoint
from glassflow_dagster.stores.dead_letters.replay import replay
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from tests.e2e.support import Pipeline, invoke
from tests.support.variants import one_of

# By n: 20 even ones, of which 4 are tens; 20 odd ones, which no route takes but for one ten-fold multiple of 5.
EVENTS = [{"id": f"k{number}", "n": number} for number in range(40)]
EVEN, FIVES, REST = 20, 8, 16
# Of the eight multiples of 5 four are even: they go to two tables.
COPIES = 4


@pytest.fixture
def shared(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline with a table for even numbers, one for multiples of 5, and one for the rest."""
    pipeline.sink = {
        "match": "all",
        "routes": [
            {"table": "even", "filter": "n % 2 == 0"},
            {
                "table": "fives",
                "filter": "n % 5 == 0",
                "mapping": [
                    {"name": "id", "column_name": "id", "column_type": "String"},
                    {"name": "n", "column_name": "small", "column_type": "Int8"},
                ],
            },
        ],
    }
    pipeline.create_topic()
    return pipeline.write()


def counts(pipeline: Pipeline) -> list[int]:
    return [pipeline.query(f"SELECT count() FROM {{db}}.{table}")[0][0] for table in ("even", "fives", "events")]


def create_refusing(pipeline: Pipeline, table: str, column: str, kind: str, condition: str) -> None:
    """Create one of the routes' tables, with a constraint that refuses rows unless the condition is true for them."""
    pipeline.client().command(f"CREATE DATABASE IF NOT EXISTS {pipeline.name}")
    pipeline.client().command(
        f"CREATE TABLE {pipeline.name}.{table} (id String, {column} {kind}, CONSTRAINT c CHECK {condition}) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"
    )


def require_exact(pipeline: Pipeline, spark: SparkSession) -> None:
    """Check the counts and the keys of all tables."""
    config = load_pipeline(pipeline.file)
    report = verify_pipeline(config, print)
    assert report.passed, report.counts.description
    found = reconcile_keys(spark, config, print)
    assert found.passed, found.description


@pytest.mark.long
def test_an_event_goes_to_each_table_that_takes_it(shared: Pipeline, spark: SparkSession) -> None:
    """A key is known once for all tables, and each row is counted."""
    shared.send([*EVENTS, *EVENTS[:10], b"broken"])
    totals = shared.catch_up()
    assert {name: totals[name] for name in ("read", "copies", "written", "duplicates", "dead_letters")} == {
        "read": 51, "copies": COPIES, "written": 40 + COPIES, "duplicates": 10, "dead_letters": 1,
    }  # fmt: skip
    assert counts(shared) == [EVEN, FIVES, REST]
    assert shared.query("SELECT id, small FROM {db}.fives WHERE small % 2 = 0 ORDER BY small") == [
        (f"k{number}", number) for number in (0, 10, 20, 30)
    ]
    require_exact(shared, spark)
    described = verify_pipeline(load_pipeline(shared.file), print).counts.description
    assert f"51 records in Kafka + {COPIES} for further tables - 10 duplicates - 1 dead letter" in described
    shown = invoke("verify", str(shared.file))
    assert (shown.code, f"+ {COPIES} for further tables" in shown.out) == (0, True)

    # A row that is lost in one of its two tables does not stay hidden.
    even = f"{shared.name}.even"
    shared.client().command(f"ALTER TABLE {even} DELETE WHERE id = 'k10' SETTINGS mutations_sync = 1")
    assert f"{even} holds 1 row fewer" in verify_pipeline(load_pipeline(shared.file), print).counts.description
    found = reconcile_keys(spark, load_pipeline(shared.file), print)
    assert not found.passed
    assert f"{even} lacks 1 row of 1 key." in found.description


@pytest.mark.long
def test_the_own_table_with_a_filter_takes_events_that_routes_take_too(shared: Pipeline, spark: SparkSession) -> None:
    shared.sink |= {"filter": "n >= 10", "unrouted": "dead_letter"}
    shared.write().send(EVENTS)
    totals = shared.catch_up()
    # Of the numbers below 10 six are even or 5.
    assert counts(shared) == [EVEN, FIVES, 30]
    assert (totals["written"], totals["dead_letters"], totals["copies"]) == (58, 4, 22)
    require_exact(shared, spark)


def test_an_event_that_does_not_fit_into_one_table_goes_to_none(shared: Pipeline) -> None:
    """So its replay may go to all of them."""
    shared.send([{"id": "large", "n": 1000}, {"id": "odd", "n": 1001}])
    totals = shared.catch_up()
    assert (counts(shared), totals["dead_letters"], totals["copies"]) == ([0, 0, 1], 1, 0)
    [(reason, table)] = shared.query("SELECT reason, only_table FROM {db}.glassflow_dead_letters")
    assert reason.endswith(f"(for {shared.name}.fives)")
    assert not table
    shared.sink["routes"][1]["mapping"][1]["column_type"] = "Int16"
    shared.client().command(f"ALTER TABLE {shared.name}.fives MODIFY COLUMN small Int16")
    shared.write().catch_up()
    replay(load_pipeline(shared.file), "1", print)
    assert shared.catch_up()["copies"] == 1
    assert counts(shared) == [1, 1, 1]
    assert verify_pipeline(load_pipeline(shared.file), print).passed


@pytest.mark.parametrize("as_job", one_of([False, True]))
@pytest.mark.long
def test_a_row_that_one_table_refuses_is_replayed_to_that_table_only(
    shared: Pipeline, spark: SparkSession, *, as_job: bool
) -> None:
    """The batch is repeated after a crash; both tables refuse one and the same event, and one of them another."""
    if as_job:
        shared.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
    shared.sink["max_batch_size"] = 7
    shared.write()
    create_refusing(shared, "even", "n", "Int32", "n NOT IN (10, 20)")
    create_refusing(shared, "fives", "small", "Int8", "small != 20")
    shared.send(EVENTS)
    shared.die_at("write_ledger_row")
    totals = shared.catch_up()
    assert counts(shared) == [EVEN - 2, FIVES - 1, REST]
    assert (totals["written"], totals["dead_letters"], totals["copies"]) == (41, 3, COPIES)
    letters = "SELECT JSONExtractString(value, 'id') AS id, only_table FROM {db}.glassflow_dead_letters ORDER BY ALL"
    even, fives = f"{shared.name}.even", f"{shared.name}.fives"
    assert shared.query(letters) == [("k10", even), ("k20", even), ("k20", fives)]
    require_exact(shared, spark)

    config = load_pipeline(shared.file)
    for table in (even, fives):
        shared.client().command(f"ALTER TABLE {table} DROP CONSTRAINT c")
    replay(config, f"only_table = '{even}'", print)
    assert shared.catch_up()["written"] == 2
    assert counts(shared) == [EVEN, FIVES - 1, REST]
    replay(config, "1", print)
    totals = shared.catch_up()
    assert (totals["written"], totals["copies"], totals["dead_letters"]) == (1, 0, 0)
    assert counts(shared) == [EVEN, FIVES, REST]
    assert shared.query("SELECT count() FROM {db}.fives WHERE id = 'k20'") == [(1,)]
    assert verify_pipeline(config, print).passed


@pytest.mark.long
def test_a_replay_to_a_table_that_takes_the_event_no_more_is_filtered(shared: Pipeline) -> None:
    create_refusing(shared, "even", "n", "Int32", "n != 10")
    shared.send(EVENTS)
    assert shared.catch_up()["dead_letters"] == 1
    shared.sink["routes"][0]["filter"] = "n % 2 == 0 && n != 10"
    shared.write().catch_up()
    replay(load_pipeline(shared.file), "1", print)
    totals = shared.catch_up()
    assert (totals["read"], totals["filtered"], totals["written"]) == (1, 1, 0)
    assert counts(shared) == [EVEN - 1, FIVES, REST]
    assert verify_pipeline(load_pipeline(shared.file), print).passed


@pytest.mark.long
@pytest.mark.parametrize("edit", one_of(["first table only", "no routes"]))
def test_after_an_edit_a_replay_for_one_table_goes_to_no_other(shared: Pipeline, edit: str) -> None:
    """The other table has the event's row already."""
    if edit == "no routes":
        shared.sink |= {"filter": "n >= 0", "unrouted": "drop"}
    shared.write()
    create_refusing(shared, "fives", "small", "Int8", "small != 10")
    shared.send(EVENTS)
    assert shared.catch_up()["dead_letters"] == 1
    before = counts(shared)
    shared.client().command(f"ALTER TABLE {shared.name}.fives DROP CONSTRAINT c")
    del shared.sink["match"]
    if edit == "no routes":
        del shared.sink["routes"]
    shared.write().catch_up()
    replay(load_pipeline(shared.file), "1", print)
    totals = shared.catch_up()
    assert (totals["read"], totals["filtered"], totals["written"]) == (1, 1, 0)
    assert counts(shared) == before


@pytest.mark.long
@pytest.mark.parametrize("recovery", one_of(["rebuild", "accept_loss"]))
def test_a_lost_checkpoint_costs_no_row_of_any_table(shared: Pipeline, recovery: str, tmp_path: Path) -> None:
    """Of the open batch one table has its rows, and another one has not."""
    shared.send(EVENTS[:20])
    shared.catch_up()
    shared.send(EVENTS[20:])
    shared.die_at("write_ledger_row")
    assert counts(shared) == [EVEN, FIVES, REST]
    shared.client().command(f"ALTER TABLE {shared.name}.even DELETE WHERE n IN (20, 22) SETTINGS mutations_sync = 1")
    (shared.state / shared.name / "checkpoint").rename(tmp_path / "lost")
    how: dict[str, Any] = {"rebuild": rebuild_checkpoint} if recovery == "rebuild" else {"accept": accept_loss}
    shared.catch_up(**how)
    assert counts(shared) == [EVEN, FIVES, REST]
    if recovery == "rebuild":
        shared.send(EVENTS)
        assert shared.catch_up()["duplicates"] == len(EVENTS)
    report = verify_pipeline(load_pipeline(shared.file), print)
    assert report.counts.passed, report.counts.description


@pytest.mark.long
def test_the_first_table_only_and_all_of_them_may_be_changed_into_each_other(shared: Pipeline) -> None:
    """A batch that is open is finished as it was begun."""
    shared.send(EVENTS[:20])
    shared.die_at("write_blocks")
    shared.sink.pop("match")
    shared.write().send(EVENTS[20:])
    shared.catch_up()
    # Of the second half 20 and 30 are even: the first route takes them.
    assert counts(shared) == [EVEN, FIVES - 2, REST]
    report = verify_pipeline(load_pipeline(shared.file), print)
    assert report.counts.passed, report.counts.description
