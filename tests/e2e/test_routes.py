"""A pipeline that writes to several tables: each event goes to the first whose condition is true for it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.recovery.acceptance import accept_loss
from glassflow_dagster.driver.recovery.rebuild import rebuild_checkpoint
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.build_definitions import Orchestration, build_folder_definitions
from glassflow_dagster.stores.dead_letters.replay import replay
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from tests.e2e.support import Pipeline, invoke, stop, tutorial
from tests.support.variants import one_of
from tests.support.waiting import wait_until

TYPES = ("buy", "refund", "view", "login")
EVENTS = [{"id": f"k{number}", "n": number, "type": TYPES[number % len(TYPES)]} for number in range(40)]
# Each key again, and as another type.
AGAIN = [{**event, "type": "buy"} for event in EVENTS[:8]]


@pytest.fixture
def routed(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline with a table for buys, one for refunds, which has columns of its own, and one for the rest."""
    pipeline.fields = [*pipeline.fields, {"name": "type", "type": "string"}]
    pipeline.columns = {**pipeline.columns, "type": "LowCardinality(String)"}
    pipeline.sink = {
        "routes": [
            {"table": "buys", "filter": 'type == "buy"'},
            {
                "table": "refunds",
                "filter": 'type == "refund" && n > 1',
                "mapping": [
                    {"name": "id", "column_name": "refund", "column_type": "String"},
                    {"name": "_partition", "column_name": "partition", "column_type": "Int32"},
                ],
            },
        ]
    }
    pipeline.create_topic()
    return pipeline.write()


def counts(pipeline: Pipeline, *tables: str) -> list[int]:
    return [pipeline.query(f"SELECT count() FROM {{db}}.{table}")[0][0] for table in tables]


def create(pipeline: Pipeline, table: str, constraint: str = "") -> None:
    """Create the table of a route, with room for tokens."""
    pipeline.client().command(f"CREATE DATABASE IF NOT EXISTS {pipeline.name}")
    pipeline.client().command(
        f"CREATE TABLE {pipeline.name}.{table} (id String, n Int32, type LowCardinality(String){constraint}) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"
    )


@pytest.mark.long
def test_each_event_goes_to_one_table(routed: Pipeline, spark: SparkSession) -> None:
    """Deduplication knows the keys of all tables; the ledger, the counts and the comparison of keys do, by table."""
    routed.send([*EVENTS, *AGAIN, b"broken", {"id": "odd", "n": None, "type": "buy"}])
    totals = routed.catch_up()
    assert (totals["read"], totals["written"], totals["duplicates"], totals["dead_letters"]) == (50, 40, 8, 2)
    assert counts(routed, "buys", "refunds", "events") == [10, 9, 21]
    assert routed.query("SELECT min(refund), max(partition) FROM {db}.refunds") == [("k13", 1)]
    assert routed.query("SELECT DISTINCT type FROM {db}.buys") == [("buy",)]
    assert routed.query("SELECT count() FROM {db}.events WHERE type = 'refund' AND n = 1") == [(1,)]

    config = load_pipeline(routed.file)
    report = verify_pipeline(config, print)
    assert report.counts.passed, report.counts.description
    names = [f"{routed.name}.{table}" for table in ("events", "buys", "refunds")]
    assert [report.counts.figures[f"{name} written"] for name in names] == [21, 10, 9]
    assert report.duplicates.passed, report.duplicates.description
    found = reconcile_keys(spark, config, print)
    assert found.passed, found.description

    # A row that is lost in one table and doubled in another one does not stay hidden.
    routed.client().command(f"ALTER TABLE {names[1]} DELETE WHERE id = 'k0' SETTINGS mutations_sync = 1")
    routed.client().command(f"INSERT INTO {names[0]} SELECT * FROM {names[0]} LIMIT 1")
    counted = verify_pipeline(config, print).counts
    assert not counted.passed
    assert f"{names[1]} holds 1 row fewer than it should: 9, but 10 rows written to it" in counted.description
    assert f"{names[0]} holds 1 row more" in counted.description
    found = reconcile_keys(spark, config, print)
    assert not found.passed
    assert f"{names[1]} lacks 1 row of 1 key." in found.description


@pytest.mark.parametrize("unrouted", one_of(["drop", "dead_letter"]))
def test_what_no_table_takes_is_dropped_and_counted_or_a_dead_letter(routed: Pipeline, unrouted: str) -> None:
    routed.sink |= {"filter": 'type == "view"', "unrouted": unrouted}
    routed.write().send(EVENTS)
    totals = routed.catch_up()
    assert counts(routed, "buys", "refunds", "events") == [10, 9, 10]
    left = {"drop": "filtered", "dead_letter": "dead_letters"}
    assert (totals["written"], totals[left[unrouted]]) == (29, 11)
    reasons = routed.query("SELECT stage, reason, count() FROM {db}.glassflow_dead_letters GROUP BY ALL")
    assert reasons == ([("route", "no table of the sink takes this event", 11)] if unrouted == "dead_letter" else [])
    assert verify_pipeline(load_pipeline(routed.file), print).passed


def test_the_sink_s_own_filter_needs_no_route(routed: Pipeline) -> None:
    routed.sink = {"filter": 'type == "view"', "unrouted": "drop"}
    routed.write().send(EVENTS)
    totals = routed.catch_up()
    assert (totals["written"], totals["filtered"], counts(routed, "events")) == (10, 30, [10])
    assert verify_pipeline(load_pipeline(routed.file), print).passed


def test_a_condition_that_cannot_be_evaluated_makes_a_dead_letter(routed: Pipeline) -> None:
    routed.sink["routes"][0]["filter"] = "int(type) == 1"
    routed.write().send([{"id": "a", "n": 1, "type": "1"}, {"id": "b", "n": 1, "type": "x"}])
    totals = routed.catch_up()
    assert (totals["written"], totals["dead_letters"], counts(routed, "buys")) == (1, 1, [1])
    [(stage, reason)] = routed.query("SELECT stage, reason FROM {db}.glassflow_dead_letters")
    assert (stage, reason.split(":")[0]) == ("route", "int(type) == 1")


@pytest.mark.parametrize("as_job", one_of([False, True]))
def test_a_repeated_batch_doubles_no_row_of_any_table(routed: Pipeline, as_job: bool) -> None:
    """Inserts of some tables have arrived, and the driver dies; one table refuses a row."""
    if as_job:
        routed.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
    routed.sink["max_batch_size"] = 7
    routed.write()
    create(routed, "buys", ", CONSTRAINT c CHECK n != 4")
    routed.send(EVENTS)
    routed.die_at("write_ledger_row")
    assert counts(routed, "buys", "refunds", "events") == [9, 9, 21]
    totals = routed.catch_up()
    assert (totals["written"], totals["dead_letters"]) == (39, 1)
    assert counts(routed, "buys", "refunds", "events") == [9, 9, 21]
    assert verify_pipeline(load_pipeline(routed.file), print).passed


@pytest.mark.long
def test_a_route_may_come_and_go_while_a_batch_is_open(routed: Pipeline) -> None:
    """The open batch is finished with the tables that it was begun with."""
    first, second = EVENTS[:20], EVENTS[20:]
    routed.send(first)
    routed.die_at("write_blocks")
    create(routed, "views")
    routed.client().command(f"INSERT INTO {routed.name}.views VALUES ('before', 0, '')")
    buys, refunds = routed.sink["routes"]
    routed.sink["routes"] = [buys, {"table": "views", "filter": 'type == "view"'}]
    routed.write()
    routed.send(second)
    routed.catch_up()
    assert counts(routed, "buys", "refunds", "events", "views") == [10, 4, 21, 6]
    config = load_pipeline(routed.file)
    assert verify_pipeline(config, print).passed
    routed.sink["routes"] = [{"table": "views", "filter": 'type == "view"'}, refunds]
    routed.write().send([{"id": "late", "n": 7, "type": "refund"}])
    routed.catch_up()
    assert counts(routed, "buys", "refunds", "events", "views") == [10, 5, 21, 6]
    assert verify_pipeline(load_pipeline(routed.file), print).passed
    routed.sink.pop("routes")
    routed.write().send([{"id": "last", "n": 7, "type": "refund"}])
    routed.catch_up()
    assert counts(routed, "events") == [22]
    report = verify_pipeline(load_pipeline(routed.file), print)
    assert report.passed
    # The views' table had a row before, which is none of the pipeline's.
    assert f"5 rows went to {routed.name}.views, which is no table of the sink any more" in report.counts.description


def test_an_open_batch_needs_the_table_and_the_columns_that_it_was_begun_with(routed: Pipeline) -> None:
    """A route and a mapping are gone from the definition, and from the server; the error has the statements."""
    routed.send(EVENTS)
    routed.die_at("write_ledger_row")
    assert counts(routed, "buys", "refunds", "events") == [10, 9, 21]
    routed.sink["routes"] = routed.sink["routes"][:1]
    routed.columns = {name: kind for name, kind in routed.columns.items() if name != "n"}
    routed.write()
    routed.client().command(f"DROP TABLE {routed.name}.refunds")
    routed.client().command(f"ALTER TABLE {routed.name}.events DROP COLUMN n")
    refused = routed.run_without_spark("--until-caught-up")
    assert refused.code == 1
    [dropped_column] = re.findall(r"'n' was dropped since: (.*?); ", refused.err)
    [dropped_table] = re.findall(
        r"refunds was dropped since: (.*?)(?:; run the statement|; column)", refused.err, re.DOTALL
    )
    routed.client().command(dropped_column)
    routed.client().command(dropped_table)
    # The rows' values of the column are gone, by which they would be found.
    with pytest.raises(GlassflowError, match=r"events: 21 rows .* changed since the insert by 'DROP COLUMN n'"):
        routed.catch_up()
    routed.catch_up(mutated_rows="written")
    assert counts(routed, "buys", "refunds", "events") == [10, 9, 21]
    assert verify_pipeline(load_pipeline(routed.file), print).counts.passed


@pytest.mark.long
def test_an_open_batch_is_finished_with_the_delivery_that_the_definition_has_now(routed: Pipeline) -> None:
    """The remedy for a table that cannot hold tokens is an edit, which the open batch follows, too."""
    routed.send(EVENTS)
    routed.die_at("write_ledger_row")
    routed.client().command(f"RENAME TABLE {routed.name}.buys TO {routed.name}.old")
    routed.client().command(
        f"CREATE TABLE {routed.name}.buys (id String, n Int32, type LowCardinality(String)) ENGINE = Log"
    )
    routed.sink["max_batch_size"] = 500
    refused = routed.write().run_without_spark("--until-caught-up")
    assert "does not recognise a repeated insert" in refused.err
    routed.sink["delivery"] = "at_least_once"
    routed.write().catch_up()
    assert counts(routed, "old", "buys", "refunds", "events") == [10, 10, 9, 21]


@pytest.mark.long
@pytest.mark.parametrize("recovery", one_of(["rebuild", "accept_loss"]))
def test_a_recovery_is_refused_where_edited_routes_may_have_moved_rows(
    routed: Pipeline, recovery: str, tmp_path: Path
) -> None:
    routed.send(EVENTS[:20])
    routed.catch_up()
    routed.send(EVENTS[20:])
    routed.die_at("write_ledger_row")
    (routed.state / routed.name / "checkpoint").rename(tmp_path / "lost")
    before = routed.sink["routes"]
    routed.sink["routes"] = [*before, {"table": "views", "filter": 'type == "view"'}]
    routed.write()
    how: dict[str, Any] = {"rebuild": rebuild_checkpoint} if recovery == "rebuild" else {"accept": accept_loss}
    with pytest.raises(GlassflowError, match=rf"edited since .*{routed.name}.views, to which no batch .*undo the edit"):
        routed.catch_up(**how)
    routed.sink["routes"] = before
    routed.write().catch_up(**how)
    assert counts(routed, "buys", "refunds", "events") == [10, 9, 21]


@pytest.mark.long
def test_a_table_without_the_key_is_named_and_the_others_are_compared(routed: Pipeline, spark: SparkSession) -> None:
    routed.sink["routes"][1]["mapping"][0] = {"name": "n", "column_name": "n", "column_type": "Int32"}
    routed.write().send(EVENTS)
    routed.catch_up()
    config = load_pipeline(routed.file)
    report = verify_pipeline(config, print)
    assert report.counts.passed
    assert f"Keys not counted: of {routed.name}.refunds, a key field has no column" in report.counts.description
    assert (report.duplicates.passed, report.duplicates.severity) == (False, "warn")
    assert f"{routed.name}.refunds: Cannot be checked: a key field has no column" in report.duplicates.description
    found = reconcile_keys(spark, config, print)
    assert (found.passed, found.decided) == (False, False)
    assert f"and {routed.name}.buys has them." in found.description
    assert f"{routed.name}.refunds: Cannot be decided: a key field has no column" in found.description
    routed.client().command(f"ALTER TABLE {routed.name}.buys DELETE WHERE id = 'k0' SETTINGS mutations_sync = 1")
    found = reconcile_keys(spark, config, print)
    assert (found.passed, found.decided) == (False, True)
    assert f"{routed.name}.buys lacks 1 row of 1 key." in found.description


@pytest.mark.long
@pytest.mark.parametrize("recovery", one_of(["rebuild", "accept_loss"]))
def test_a_lost_checkpoint_costs_no_row_of_any_table(routed: Pipeline, recovery: str, tmp_path: Path) -> None:
    routed.send(EVENTS[:20])
    routed.catch_up()
    routed.send(EVENTS[20:])
    routed.die_at("write_ledger_row")
    assert counts(routed, "buys", "refunds", "events") == [10, 9, 21]
    (routed.state / routed.name / "checkpoint").rename(tmp_path / "lost")
    how: dict[str, Any] = {"rebuild": rebuild_checkpoint} if recovery == "rebuild" else {"accept": accept_loss}
    routed.catch_up(**how)
    assert counts(routed, "buys", "refunds", "events") == [10, 9, 21]
    if recovery == "rebuild":
        routed.send(EVENTS)
        assert routed.catch_up()["duplicates"] == len(EVENTS)
    report = verify_pipeline(load_pipeline(routed.file), print)
    assert report.counts.passed, report.counts.description


@pytest.mark.long
def test_a_replayed_dead_letter_finds_its_table(routed: Pipeline) -> None:
    """A row that a table has refused goes to the table that the current routes choose."""
    create(routed, "buys", ", CONSTRAINT c CHECK n != 4")
    routed.send(EVENTS[:8])
    assert routed.catch_up()["dead_letters"] == 1
    routed.sink["routes"][0]["filter"] = 'type == "buy" && n != 4'
    routed.write()
    routed.catch_up()
    replay(load_pipeline(routed.file), "1", print)
    assert routed.catch_up()["written"] == 1
    assert routed.query("SELECT id FROM {db}.events WHERE type = 'buy'") == [("k4",)]
    assert verify_pipeline(load_pipeline(routed.file), print).passed


@pytest.mark.long
def test_dagster_shows_each_table(routed: Pipeline) -> None:
    routed.send(EVENTS)
    loaded = build_folder_definitions(routed.file.parent, Orchestration(runner=LocalRunner(routed.state)))
    described = {spec.key.path[-1]: spec.description for spec in loaded.resolve_all_asset_specs()}
    assert "with all other events" in described["events"]
    assert f"The checks of the asset of `{routed.name}.events` cover this table, too." in described["buys"]
    job = loaded.resolve_implicit_global_asset_job_def()
    try:
        with dg.DagsterInstance.ephemeral() as instance:
            wait_until(lambda: job.execute_in_process(instance=instance).success, "the stream runs")
            wait_until(lambda: routed.ledger()["read"] == len(EVENTS), "all is read")
            result = job.execute_in_process(instance=instance)
        written = {
            event.asset_key.path[-1]: event.materialization.metadata["written"].value
            for event in result.get_asset_materialization_events()
            if event.asset_key and "written" in event.materialization.metadata
        }
        assert written == {"events": 21, "buys": 10, "refunds": 9}
        assert all(check.passed for check in result.get_asset_check_evaluations())
    finally:
        stop(routed)


def test_the_tutorial_does_what_it_says(pipeline: Pipeline, tmp_path: Path) -> None:
    topic, state = f"{pipeline.name}.shop", pipeline.state
    own = {'"shop_events"': f'"{topic}"', "topic: shop_events": f"topic: {topic}"}
    text, blocks = tutorial("topics", pipeline, own, "One topic into many tables")
    (tmp_path / "send.py").write_text(blocks["python"])
    subprocess.run([sys.executable, tmp_path / "send.py"], check=True)
    database, pipeline.name = pipeline.name, "shop_events"
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(blocks["yaml"])
    assert invoke("run", str(pipeline.file), "--until-caught-up", "--state", str(state)).code == 0
    found = pipeline.query(blocks["sql"].replace("FROM shop", f"FROM {database}.shop"))
    shown = re.findall(r"^(\w+) +(\d+) +(\d+)$", text, re.MULTILINE)
    assert found == [(table, int(count), int(cents)) for table, count, cents in shown]
    done = invoke("verify", pipeline.name, "--pipelines", str(pipeline.file.parent))
    assert done.code == 0
    [told] = re.findall(r"^ok .*$", text, re.MULTILINE)
    assert told.replace("default.", f"{database}.") in done.out
