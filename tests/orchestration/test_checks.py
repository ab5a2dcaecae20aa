"""The checks as Dagster runs them, with the servers down; their comparisons are tested in tests/checks."""

from pathlib import Path

import dagster as dg
import pytest

from glassflow_dagster.checks.count_rules import CountsReport
from glassflow_dagster.checks.duplicates import DuplicatesReport
from glassflow_dagster.checks.unmatched import evaluate_unmatched
from glassflow_dagster.checks.waiting_dead_letters import Cause, DeadLettersReport
from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.launch import LaunchFailed, launch_driver
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.status import stream_status
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.orchestration import checks
from glassflow_dagster.orchestration.build_definitions import build_pipeline_assets
from glassflow_dagster.orchestration.options import CheckOptions, PipelineOptions
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DeadLetter
from glassflow_dagster.stores.clickhouse.errors import LimitReached
from tests.support.waiting import wait_until

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def evaluate(
    definition: Path, state: Path, options: PipelineOptions | None = None
) -> dict[str, dg.AssetCheckEvaluation]:
    """Run the checks alone, without their assets."""
    assets = build_pipeline_assets(load_pipeline(definition), options, LocalRunner(state))
    job = dg.Definitions(assets=[assets]).resolve_implicit_global_asset_job_def()
    checks_only = job.get_subset(asset_selection=set(), asset_check_selection={*assets.check_keys})
    result = checks_only.execute_in_process(raise_on_error=False)
    assert result.success
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def test_a_server_that_is_down_fails_a_check_with_the_reason_and_no_traceback(definition: Path, state: Path) -> None:
    results = evaluate(definition, state)
    for name in ("counts_agree", "no_residual_duplicates", "dead_letters"):
        assert not results[name].passed
        assert results[name].severity is ERROR
        assert "cannot be reached" in str(results[name].description)


def test_a_running_stream_is_live(definition: Path, deployment: Deployment) -> None:
    launch_driver(deployment)
    result = evaluate(definition, deployment.state)["stream_is_live"]
    assert result.passed
    assert result.metadata["batch_id"].value == 3


@pytest.mark.parametrize(("behaviour", "state_name"), [("fails", "FAILED"), ("silent", "STALE"), ("stalls", "STALLED")])
def test_a_stream_that_failed_stalled_or_fell_silent_is_an_error(
    definition: Path, deployment: Deployment, monkeypatch: pytest.MonkeyPatch, behaviour: str, state_name: str
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", behaviour)
    try:
        launch_driver(deployment)
    except LaunchFailed:
        assert behaviour == "fails"
    pipeline_id = deployment.config.pipeline_id
    wait_until(lambda: stream_status(deployment.state, pipeline_id).state.value == state_name, "it is seen")
    result = evaluate(definition, deployment.state)["stream_is_live"]
    assert (result.passed, result.severity) == (False, ERROR)
    assert str(result.description).startswith(f"{state_name}: ")


def test_a_stream_that_someone_stopped_is_a_warning(definition: Path, deployment: Deployment) -> None:
    launch_driver(deployment)
    stop_driver(deployment.state, deployment.config.pipeline_id)
    result = evaluate(definition, deployment.state)["stream_is_live"]
    assert (result.passed, result.severity) == (False, WARN)
    assert "materialize the table to start it" in str(result.description)


def test_dead_letters_are_a_warning_with_reasons_and_the_last_ones(
    definition: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letter = DeadLetter(
        "i", 1, 1_700_000_000_000, "t", 2, 3, -1, 0, None, b"\xff", (), "decode", "'why'", "", 0, 0, "t", 2, 3, -1,
        passed_dedup=False, expires_at=0, replayed=False,
    )  # fmt: skip
    found = DeadLettersReport(
        passed=False,
        description="1 dead letter waits.",
        figures={"waiting": 1, "allowed": 0},
        causes=(Cause("decode", "why", 1),),
        last=(dead_letter,),
    )
    monkeypatch.setattr(checks, "examine_dead_letters", lambda _: found)
    monkeypatch.delenv("GLASSFLOW_SHOW_VALUES", raising=False)
    result = evaluate(definition, state)["dead_letters"]
    assert (result.passed, result.severity, result.description) == (False, WARN, "1 dead letter waits.")
    assert result.metadata["waiting"].value == 1
    assert [record.data for record in result.metadata["reasons"].records] == [
        {"stage": "decode", "reason": "why", "dead_letters": 1}
    ]
    (last,) = (record.data for record in result.metadata["last"].records)
    assert set(last) == {"record", "batch_time", "stage", "attempt"}
    # Both apply: the environment variable, and the definition, which takes precedence.
    monkeypatch.setenv("GLASSFLOW_SHOW_VALUES", "true")
    (last,) = (record.data for record in evaluate(definition, state)["dead_letters"].metadata["last"].records)
    assert (last["record"], last["value"], last["reason"]) == ("t/2/3", "\\xff", "'why'")
    definition.write_text(definition.read_text() + "checks: {show_values: false}\n")
    (last,) = (record.data for record in evaluate(definition, state)["dead_letters"].metadata["last"].records)
    assert "value" not in last


def test_keys_of_duplicates_are_shown_only_where_values_may_be(
    definition: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = DuplicatesReport(
        passed=False,
        severity="error",
        description="t has 1 duplicate row.",
        figures={"duplicate_rows": 1, "examples": "('k')"},
    )
    monkeypatch.setattr(checks, "find_residual_duplicates", lambda *_: found)
    monkeypatch.delenv("GLASSFLOW_SHOW_VALUES", raising=False)
    assert set(evaluate(definition, state)["no_residual_duplicates"].metadata) == {"duplicate_rows"}
    definition.write_text(definition.read_text() + "checks: {show_values: true}\n")
    assert evaluate(definition, state)["no_residual_duplicates"].metadata["examples"].value == "('k')"


def test_unmatched_events_beyond_what_is_allowed_are_a_warning(
    join_definition: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = evaluate(join_definition, state)["unmatched_share"]
    assert (down.passed, down.severity) == (False, ERROR)
    assert "cannot be reached" in str(down.description)
    monkeypatch.setattr(checks, "examine_unmatched", lambda _: evaluate_unmatched("5%", 90, 10, 3))
    result = evaluate(join_definition, state)["unmatched_share"]
    assert (result.passed, result.severity) == (False, WARN)
    assert (result.metadata["unmatched"].value, result.metadata["unmatched_percent"].value) == (10, 10.0)


def test_a_check_that_a_limit_has_ended_warns_that_nothing_was_checked(
    definition: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> DuplicatesReport:
        raise LimitReached("ClickHouse ended a query at a limit; raise it")

    for name in ("compare_counts", "find_residual_duplicates", "examine_dead_letters"):
        monkeypatch.setattr(checks, name, ended)
    results = evaluate(definition, state)
    for name in ("counts_agree", "no_residual_duplicates", "dead_letters"):
        assert (results[name].passed, results[name].severity) == (False, WARN)
        assert results[name].description == "Not checked: ClickHouse ended a query at a limit; raise it."


def test_records_that_wait_for_a_first_batch_are_a_warning(
    definition: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = CountsReport(passed=False, exact=False, description="3 records wait", records_wait=True)
    monkeypatch.setattr(checks, "compare_counts", lambda *_: report)
    result = evaluate(definition, state)["counts_agree"]
    assert (result.passed, result.severity, result.description) == (False, WARN, "3 records wait")


def test_text_of_records_is_text_in_dagster(definition: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster shows a description as Markdown, and its terminal metadata and logs."""
    name = "[a](http://x)\n# b\x1b[2J"
    report = CountsReport(passed=False, exact=True, description=name, figures={"problem": name})
    monkeypatch.setattr(checks, "compare_counts", lambda *_: report)
    result = evaluate(definition, state)["counts_agree"]
    assert result.description == "[a]\\(http://x)  \n\\# b\\x1b[2J"
    assert result.metadata["problem"].value == "[a](http://x)\n# b\\x1b[2J"


def test_the_checks_of_a_join_say_what_they_are_about(join_definition: Path) -> None:
    assets = build_pipeline_assets(load_pipeline(join_definition))
    described = {spec.name: spec.description or "" for spec in assets.check_specs}
    assert "both topics" in described["counts_agree"]
    assert "left event" in described["no_residual_duplicates"]


def test_a_check_can_be_switched_off_and_have_a_severity(definition: Path, state: Path) -> None:
    options = {"dead_letters": CheckOptions(enabled=False), "stream_is_live": CheckOptions(severity=WARN)}
    results = evaluate(definition, state, PipelineOptions(checks=options))
    assert set(results) == {"counts_agree", "no_residual_duplicates", "stream_is_live"}
    assert (results["stream_is_live"].passed, results["stream_is_live"].severity) == (False, WARN)
