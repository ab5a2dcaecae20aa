"""Materializations: what a run does with the stream, with real fake-driver processes and both servers down."""

import os
import signal
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.status import StreamState, stream_status
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.orchestration.asset_keys import build_asset_keys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG
from glassflow_dagster.orchestration.build_definitions import build_pipeline_assets
from glassflow_dagster.orchestration.checks import ALL_CHECKS
from glassflow_dagster.orchestration.options import CheckOptions, PipelineOptions
from tests.support.waiting import wait_until

DEFINITIONS = Path(__file__).parents[1] / "definitions"
ID = "sms_status"
AUTOMATED = {AUTOMATED_TAG: "health_check"}


def run(
    deployment: Deployment,
    mode: str = "ENSURE",
    **settings: Any,
) -> dg.ExecuteInProcessResult:
    config = reloaded(deployment)
    runner = LocalRunner(deployment.state, spark_config={"spark.ui.enabled": "true"})
    # The checks ask both servers, and have tests of their own.
    options = PipelineOptions(checks={name: CheckOptions(enabled=False) for name in ALL_CHECKS})
    return dg.materialize(
        [build_pipeline_assets(config, options, runner)],
        run_config={"ops": {f"{build_asset_keys(config).name}__stream": {"config": {"mode": mode}}}},
        raise_on_error=False,
        **settings,
    )


def reloaded(deployment: Deployment) -> PipelineConfig:
    """Load the definition again: a test may have edited it."""
    file = deployment.config.origin.file
    assert file
    return load_pipeline(file)


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    return {
        event.asset_key.path[-1]: {name: value.value for name, value in event.materialization.metadata.items()}
        for event in result.get_asset_materialization_events()
        if event.asset_key
    }


def stream_figures(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    assert result.success
    return materialized(result)["deduplicated_sms_status_events"]


def versions(result: dg.ExecuteInProcessResult) -> set[str]:
    events = result.get_asset_materialization_events()
    return {(event.materialization.tags or {})["dagster/data_version"] for event in events}


def state_of(deployment: Deployment) -> StreamState:
    return stream_status(deployment.state, ID).state


def test_materializing_launches_the_stream_and_again_checks_its_health(deployment: Deployment) -> None:
    first = stream_figures(run(deployment))
    second = stream_figures(run(deployment))
    assert (first["action"], second["action"]) == ("launched", "health_checked")
    assert first["pid"] == second["pid"]
    assert first["state"] == "RUNNING"
    assert Path(first["spark_log"]).read_text()


def test_what_an_older_definition_has_for_nothing_is_in_the_log_of_the_run_once(deployment: Deployment) -> None:
    raw = yaml.safe_load((DEFINITIONS / "v2" / "elevators.json").read_text())
    file = deployment.config.origin.file
    assert file
    file.write_text(yaml.safe_dump({**raw, "owner": "ops"}))
    with dg.DagsterInstance.ephemeral() as instance:
        # The folder's definition has another name; only the warning matters here, not the driver.
        result = run(deployment, "STOP", instance=instance)
        logged = [entry.user_message for entry in instance.all_logs(result.run_id)]
    said = f"{raw['pipeline_id']}: owner: unknown key, which is ignored; remove it or check its spelling"
    assert logged.count(said) == 1


def test_a_launch_waits_for_the_first_batch_and_has_its_figures(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "warms")
    assert stream_figures(run(deployment))["batch_id"] == 3


def test_spark_settings_of_the_runner_reach_the_driver(deployment: Deployment) -> None:
    figures = stream_figures(run(deployment))
    assert "'--conf', 'spark.ui.enabled=true'" in Path(figures["spark_log"]).read_text()


def test_one_asset_alone_looks_after_the_stream_too(deployment: Deployment) -> None:
    table = build_asset_keys(deployment.config).table
    assert set(materialized(run(deployment, selection=[table]))) == {"sms_statuses_latest"}
    assert state_of(deployment) is StreamState.RUNNING


def test_the_data_version_is_the_committed_offsets_so_a_health_check_changes_nothing(deployment: Deployment) -> None:
    assert versions(run(deployment)) == versions(run(deployment)) == {"sms_status_events@0:40,1:60"}


def test_a_joins_assets_have_figures_each_and_a_version_of_both_topics(join_definition: Path, state: Path) -> None:
    config = load_pipeline(join_definition)
    result = run(Deployment(state, config=config, timeout=30))
    assert result.success
    figures = materialized(result)
    assert list(figures) == [key.path[-1] for key in build_asset_keys(config).assets]
    for topic in ("raw_auction_bids", "raw_auction_lots"):
        assert "127.0.0.1" in figures[topic]["problem"]
    for stream in ("deduplicated_auction_bids", "deduplicated_auction_lots"):
        assert figures[stream] == {"action": "launched", "state": "RUNNING"}
    assert (figures["joined_bids_lots"]["action"], figures["joined_bids_lots"]["batch_id"]) == ("launched", 3)
    assert "ClickHouse at 127.0.0.1" in figures["joined_bids_lots"]["problem"]
    assert versions(result) == {"auction.bids@0:40,1:60 auction.lots@0:40,1:60"}


def test_the_data_version_stays_when_the_offsets_cannot_be_known(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        before = versions(run(deployment, instance=instance))
        monkeypatch.setenv("FAKE_DRIVER", "new")
        assert versions(run(deployment, "RESTART", instance=instance)) == before


def test_servers_that_are_down_are_findings_and_not_failures(deployment: Deployment) -> None:
    result = run(deployment)
    assert result.success
    figures = materialized(result)
    assert "127.0.0.1" in figures["raw_sms_status_events"]["problem"]
    assert "ClickHouse at 127.0.0.1" in figures["sms_statuses_latest"]["problem"]


def test_restart_replaces_the_driver(deployment: Deployment) -> None:
    first = stream_figures(run(deployment))
    second = stream_figures(run(deployment, "RESTART"))
    assert second["action"] == "restarted"
    assert first["pid"] != second["pid"]


def test_stop_ends_the_stream_and_is_no_failure(deployment: Deployment) -> None:
    run(deployment)
    figures = stream_figures(run(deployment, "STOP"))
    assert (figures["action"], figures["state"]) == ("stopped", "STOPPED")


def test_stop_of_a_stream_that_never_ran_is_no_failure_and_materializes_nothing(deployment: Deployment) -> None:
    result = run(deployment, "STOP")
    assert result.success
    assert not materialized(result)


def test_automation_leaves_a_stopped_stream_alone_and_says_so(deployment: Deployment) -> None:
    run(deployment)
    run(deployment, "STOP")
    result = run(deployment, tags=AUTOMATED)
    assert result.success
    assert not materialized(result)
    assert [event.asset_key for event in result.all_events if event.is_asset_observation] == [
        build_asset_keys(deployment.config).stream
    ]
    assert state_of(deployment) is StreamState.STOPPED
    assert stream_figures(run(deployment))["action"] == "launched"


def test_automation_brings_back_a_stream_that_died(deployment: Deployment) -> None:
    pid = stream_figures(run(deployment))["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: state_of(deployment) is not StreamState.RUNNING, "the death is seen")
    assert stream_figures(run(deployment, tags=AUTOMATED))["action"] == "restarted"


def test_a_driver_that_cannot_start_fails_the_run_with_its_message_and_the_end_of_its_log(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "fails")
    result = run(deployment)
    assert not result.success
    failure = result.failure_data_for_node(f"{ID}__stream")
    assert failure is not None
    assert failure.user_failure_data is not None
    assert "did not start: ClickHouse at 127.0.0.1:1 cannot be reached; start it" in str(
        failure.user_failure_data.description
    )
    assert "arguments:" in str(failure.user_failure_data.metadata["tail"].value)
