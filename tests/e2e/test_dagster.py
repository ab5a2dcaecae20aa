"""Dagster on real servers: materializations start and restart streams, and checks pass and fail when they must."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from glassflow_dagster.control.heartbeat import Heartbeat, read_heartbeat
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.orchestration.build_definitions import Orchestration, build_pipeline_definitions
from tests.e2e.joins import LEFT, RIGHT, JoinPipeline
from tests.e2e.support import Pipeline
from tests.faults.http_proxy import HttpProxy
from tests.servers.stack import Stack
from tests.support.waiting import wait_until


class Project:
    """A Dagster code location with one pipeline, run in this process."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.instance = dg.DagsterInstance.ephemeral()

    @property
    def heartbeat(self) -> Heartbeat:
        beat = read_heartbeat(self.pipeline.state / self.pipeline.name)
        assert beat is not None
        return beat

    def materialize(self) -> dg.ExecuteInProcessResult:
        """Materialize all assets of the pipeline, and run its checks."""
        how = Orchestration(runner=LocalRunner(self.pipeline.state))
        defs = build_pipeline_definitions(load_pipeline(self.pipeline.file), how)
        return defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=self.instance)

    def checks(self, result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
        return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}

    def wait_for_rows(self, rows: int) -> None:
        def arrived() -> bool:
            return self.pipeline.query("SELECT count() FROM {db}.events") == [(rows,)]

        wait_until(arrived, f"{rows} rows are in the table")


@pytest.fixture
def project(pipeline: Pipeline) -> Iterator[Project]:
    pipeline.columns = {"id": "String", "n": "Int32", "_batch_time": "DateTime64(3)"}
    pipeline.write().create_topic()
    yield Project(pipeline)
    stop_driver(pipeline.state, pipeline.name)


def test_a_killed_driver_comes_back_with_the_next_materialization_and_counts_stay_exact(project: Project) -> None:
    pipeline = project.pipeline
    pipeline.send({"id": f"k{index % 800}", "n": index} for index in range(1000))
    first = project.materialize()
    assert first.success
    project.wait_for_rows(800)
    launched = project.heartbeat.pid

    os.kill(launched, signal.SIGKILL)
    pipeline.send({"id": f"k{index}", "n": index} for index in range(500, 1300))
    second = project.materialize()
    assert project.heartbeat.pid != launched
    project.wait_for_rows(1300)
    assert pipeline.query("SELECT uniqExact(id) FROM {db}.events") == [(1300,)]

    restarted = project.heartbeat.pid
    third = project.materialize()
    assert project.heartbeat.pid == restarted
    checks = project.checks(third)
    assert {name: check.passed for name, check in checks.items()} == {
        "counts_agree": True,
        "dead_letters": True,
        "no_residual_duplicates": True,
        "stream_is_live": True,
    }
    assert second.success

    # A row inserted twice by hand.
    pipeline.client().command(
        f"INSERT INTO {pipeline.name}.events SELECT * FROM {pipeline.name}.events WHERE id = 'k1'"
    )
    red = project.checks(project.materialize())
    assert not red["counts_agree"].passed
    assert not red["no_residual_duplicates"].passed
    assert red["no_residual_duplicates"].severity == dg.AssetCheckSeverity.ERROR
    assert red["stream_is_live"].passed


@pytest.mark.long
def test_an_edited_definition_is_redeployed_on_the_same_checkpoint_and_health_checks_change_no_version(
    project: Project,
) -> None:
    pipeline = project.pipeline
    pipeline.send([{"id": "a", "n": 1}])
    project.materialize()
    project.wait_for_rows(1)
    wait_until(lambda: project.heartbeat.batch_id == 0, "the driver has told of its batch")
    launched = project.heartbeat.pid
    versions = [_versions(project.materialize()) for _ in range(2)]
    assert versions[0] == versions[1]
    assert project.heartbeat.pid == launched

    pipeline.sink = {"max_batch_size": 500}
    pipeline.write()
    pipeline.send([{"id": "a", "n": 2}, {"id": "b", "n": 3}])
    project.materialize()
    assert project.heartbeat.pid != launched
    project.wait_for_rows(2)
    # One batch or two, as the first driver may have read one of the events.
    wait_until(lambda: project.heartbeat.totals.read == 3, "the driver has told of its batches")
    assert _versions(project.materialize()) != versions[0]


@pytest.mark.long
def test_a_join_shows_at_its_own_asset_what_became_of_its_events(stack: Stack, tmp_path: Path) -> None:
    pipeline = JoinPipeline(tmp_path, stack.kafka, stack.clickhouse_port, left_window=3600)
    pipeline.client().command(f"CREATE DATABASE IF NOT EXISTS {pipeline.name}")
    pipeline.write().create_topic()
    matched, waits = {"id": "l1", "user": "u", "at": 1}, {"id": "l2", "user": "nobody", "at": 2}
    right, keyless = {"id": "r1", "owner": "u", "at": 1}, {"id": "r2", "at": 3}
    pipeline.send_both([(RIGHT, right), (RIGHT, keyless), (LEFT, matched), (LEFT, waits), (LEFT, matched)])
    project = Project(pipeline)
    try:
        project.materialize()
        wait_until(lambda: pipeline.join_ledger()["read"] == 5, "all is read")
        wait_until(lambda: project.heartbeat.totals.read == 5, "the driver has told of its batch")
        # Spark tells of a batch, and so of the state's size, only after its commit.
        wait_until(lambda: project.heartbeat.state_bytes, "the driver has told of its state's size")
        result = project.materialize()
    finally:
        stop_driver(pipeline.state, pipeline.name)
    assert {name: check.passed for name, check in project.checks(result).items()} == {
        "counts_agree": True,
        "dead_letters": True,
        "no_residual_duplicates": True,
        "stream_is_live": True,
        "unmatched_share": True,
    }
    figures = {
        event.asset_key.path[-1]: {name: value.value for name, value in event.materialization.metadata.items()}
        for event in result.get_asset_materialization_events()
        if event.asset_key
    }
    joined = figures["joined_left_right"]
    names = ("read", "duplicates", "matched", "unmatched", "waiting", "accepted", "null_keys", "joined")
    assert [joined[name] for name in names] == [5, 1, 1, 0, 1, 2, 1, 1]
    assert joined["state_bytes"] > 0
    for side, records in ((LEFT, 3), (RIGHT, 2)):
        topic = figures[f"raw_{pipeline.topic(side).replace('-', '_')}"]
        assert (sum(topic["high_offsets"].values()), topic["lag"]) == (records, 0)
    assert figures["events"]["dagster/row_count"] == 1


def _versions(result: dg.ExecuteInProcessResult) -> dict[str, str | None]:
    return {
        event.asset_key.to_user_string(): (event.materialization.tags or {}).get("dagster/data_version")
        for event in result.get_asset_materialization_events()
    }


@pytest.mark.long
def test_clickhouse_that_stops_gives_failed_checks_with_a_reason(stack: Stack, tmp_path: Path) -> None:
    proxy = HttpProxy(free_port(), stack.clickhouse_port)
    pipeline = Pipeline(tmp_path, stack.kafka, proxy.port).write()
    try:
        pipeline.create_topic()
        pipeline.send([{"id": "a", "n": 1}])
        project = Project(pipeline)
        project.materialize()
        project.wait_for_rows(1)
        proxy.refuse()
        found = project.checks(project.materialize())
        assert not found["counts_agree"].passed
        assert f"127.0.0.1:{proxy.port}" in str(found["counts_agree"].description)
        assert "Traceback" not in str(found["counts_agree"].description)
        assert not found["no_residual_duplicates"].passed
    finally:
        stop_driver(pipeline.state, pipeline.name)
        proxy.close()
