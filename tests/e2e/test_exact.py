"""`verify --exact` on a table that a pipeline wrote, before and after manual changes to the table."""

import json
from uuid import UUID

import dagster as dg
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from glassflow_dagster.checks import wait_until_stable
from glassflow_dagster.checks.exact import session as exact_session
from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.cli.verify import verify
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.orchestration.exact import build_exact_job
from glassflow_dagster.orchestration.resources import spark as spark_resource
from tests.e2e.support import Pipeline

# A field type and column type of every kind that is compared, and of one that is not.
TYPES = {
    "id": ("string", "String"),
    "n": ("int", "Int32"),
    "uid": ("string", "UUID"),
    "big": ("uint", "UInt64"),
    "yes": ("bool", "Bool"),
    "at": ("string", "DateTime64(3)"),
    "second": ("int", "DateTime"),
    "day": ("string", "Date"),
    "ip": ("string", "IPv4"),
    "kind": ("string", "Enum8('x' = 1, 'y' = 2)"),
    "note": ("string", "LowCardinality(Nullable(String))"),
    "share": ("float64", "Float64"),
}


def event(key: int, n: int) -> dict[str, object]:
    return {
        "id": f"ké{key}", "n": n, "uid": str(UUID(int=n)).upper(), "big": 2**64 - 1 - n, "yes": n % 2 == 0,
        "at": f"2024-02-29 10:00:00.{n % 1000:03}", "second": 1_700_000_000 + n, "day": "2024-02-29",
        "ip": f"10.0.0.{n % 256}", "kind": "xy"[n % 2], "note": None if n % 3 else "a:1-", "share": n / 7,
    }  # fmt: skip


@pytest.fixture
def written(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Return a pipeline after two batches with duplicates (in and across them) and bad, filtered, rejected events."""
    # No batch is in progress in these tests, so nothing needs to be waited for.
    monkeypatch.setattr(wait_until_stable, "STILL_SECONDS", 0.0)
    pipeline.fields = [{"name": name, "type": kind, "required": name != "note"} for name, (kind, _) in TYPES.items()]
    pipeline.columns = {name: kind for name, (_, kind) in TYPES.items()} | {"_batch_time": "DateTime64(3)"}
    pipeline.transforms = [{"type": "filter", "config": {"expression": "n != 13"}}]
    pipeline.write().create_topic()
    pipeline.send([*(event(n % 50, n) for n in range(80)), b"poison"])
    pipeline.catch_up()
    pipeline.client().command(f"ALTER TABLE {pipeline.name}.events ADD CONSTRAINT c CHECK n != 125")
    pipeline.send([event(n % 70, n) for n in range(80, 140)])
    assert pipeline.catch_up()["dead_letters"] == 1
    return pipeline


@pytest.mark.long
def test_a_lost_a_doubled_a_strange_and_a_swapped_row_are_found(
    written: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_pipeline(written.file)
    rows = written.query("SELECT count() FROM {db}.events")[0][0]
    found = reconcile_keys(spark, config, print)
    assert found.passed, found
    assert found.figures == {
        "expected_rows": rows, "rows": rows, "lost_keys": 0, "missing_rows": 0, "surplus_rows": 0, "changed_rows": 0,
    }  # fmt: skip
    assert found.description.endswith("has them. Not compared: the values of share.")

    table, client = f"{written.name}.events", written.client()
    client.command(f"ALTER TABLE {table} DELETE WHERE id = 'ké3' SETTINGS mutations_sync = 1")
    client.command(f"INSERT INTO {table} (id, n) VALUES ('stranger', 1)")
    # One row is lost and one has an unknown key, so the counts agree.
    assert verify_pipeline(config, print).counts.passed
    client.command(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 'ké4'")
    # Change a value to that of the key's other event, which deduplication removed.
    client.command(f"ALTER TABLE {table} UPDATE n = 55 WHERE id = 'ké5' SETTINGS mutations_sync = 1")

    # Run it as a job in Dagster; the Spark session of its resource is the test's own.
    monkeypatch.setenv("GLASSFLOW_SHOW_VALUES", "true")
    monkeypatch.setattr(spark_resource, "start_session", lambda *_: spark)
    result = build_exact_job("glassflow", [config], {}).execute_in_process(raise_on_error=False)

    assert not result.success
    (event,) = (event for event in result.all_node_events if event.event_type is dg.DagsterEventType.STEP_FAILURE)
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert "lacks 1 row of 1 key." in str(failure.description)
    figures = {name: value.value for name, value in failure.metadata.items()}
    assert set(figures.pop("surplus_examples").split("; ")) == {"ké4", "stranger"}
    assert figures == {
        "expected_rows": rows, "rows": rows + 1, "lost_keys": 1,
        "missing_rows": 1, "missing_examples": "ké3", "surplus_rows": 2, "changed_rows": 1, "changed_examples": "ké5",
    }  # fmt: skip


def test_the_command_says_what_cannot_be_decided_and_does_not_pass(
    pipeline: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_until_stable, "STILL_SECONDS", 0.0)
    monkeypatch.setattr(exact_session, "start_session", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    pipeline.columns = {"n": "Int32"}
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    pipeline.catch_up()
    asked = [pipeline.name, "--pipelines", str(pipeline.file.parent), "--exact", "--json"]
    done = CliRunner().invoke(verify, asked)
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["passed"], found["counts"]["passed"]) == (False, True)
    assert (found["keys"]["passed"], found["keys"]["decided"]) == (False, False)
    assert "a key field has no column" in found["keys"]["description"]


def test_without_deduplication_every_record_has_its_row(
    pipeline: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_until_stable, "STILL_SECONDS", 0.0)
    pipeline.write(dedup=False).create_topic()
    pipeline.send([{"id": "a", "n": n % 3} for n in range(10)])
    pipeline.catch_up()
    config = load_pipeline(pipeline.file)
    pipeline.client().command(
        f"ALTER TABLE {pipeline.name}.events UPDATE n = 7 WHERE n = 2 SETTINGS mutations_sync = 1"
    )
    found = reconcile_keys(spark, config, print)
    assert (found.figures["missing_rows"], found.figures["surplus_rows"]) == (3, 3)
    assert found.figures["surplus_examples"] == "a, 7"


@pytest.mark.long
def test_a_row_that_was_refused_before_a_new_start_is_expected_after_it(
    pipeline: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_until_stable, "STILL_SECONDS", 0.0)
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    pipeline.catch_up()
    table = f"{pipeline.name}.events"
    pipeline.client().command(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK n != 2")
    pipeline.send([{"id": "b", "n": 2}])
    assert pipeline.catch_up()["dead_letters"] == 1
    pipeline.client().command(f"ALTER TABLE {table} DROP CONSTRAINT c")
    pipeline.client().command(f"TRUNCATE TABLE {table}")
    assert pipeline.catch_up(start_over=True)["written"] == 2
    found = reconcile_keys(spark, load_pipeline(pipeline.file), print)
    assert found.passed, found.description
