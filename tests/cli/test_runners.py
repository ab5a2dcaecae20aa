"""The commands that start pipelines on a runner and show their logs; the drivers are fake."""

from pathlib import Path

import pytest

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.launch import launch_driver
from glassflow_dagster.control.runners.settings import RUNNER, RUNNER_OPTIONS, SparkSubmitSettings
from glassflow_dagster.control.runners.standalone import NOTE, Submitted
from tests.e2e.support import invoke

ID = "sms_status"


def test_the_last_lines_of_a_driver_are_printed(deployment: Deployment) -> None:
    launch_driver(deployment)
    found = invoke("logs", ID, "--state", str(deployment.state))
    assert found.code == 0
    assert found.out.startswith("arguments: ")
    assert len(invoke("logs", ID, "--state", str(deployment.state), "--lines", "1").out.splitlines()) == 1


def test_a_pipeline_that_never_ran_has_no_log(tmp_path: Path) -> None:
    found = invoke("logs", "nobody", "--state", str(tmp_path))
    assert found.code == 1
    assert "pipeline 'nobody' has never run with this state folder; name its folder with --state DIR" in found.err


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (("--runner-option", "master=x"), {}, "--runner-option: master: runner local has no such option; it has none"),
        (("--runner", "spark-submit", "--runner-option", "master"), {}, "write KEY=VALUE, with a key of the runner"),
        ((), {RUNNER: "spark-submit", RUNNER_OPTIONS: "master=local[2]"}, "'local[2]' is no cluster"),
        (("--runner", "mesos"), {}, "'mesos' is not one of 'local', 'spark-submit', 'kubernetes'"),
    ],
)
def test_a_wrong_runner_is_wrong_usage(
    definition: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    text: str,
) -> None:
    found = invoke("start", str(definition), "--state", str(tmp_path), *arguments, environment=environment)
    assert found.code == 2
    assert text in " ".join(found.err.split())


def test_a_pipeline_that_cannot_run_on_the_runner_is_refused_in_a_line(definition: Path, tmp_path: Path) -> None:
    arguments = ("--runner", "spark-submit", "--runner-option", "master=spark://127.0.0.1:7077")
    found = invoke("start", str(definition), "--state", str(tmp_path), *arguments)
    assert found.code == 1
    assert found.err.splitlines()[-1].startswith(f"error: {ID}: other hosts cannot reach a local folder of state; ")


@pytest.mark.parametrize("command", ["status", "stop", "logs"])
def test_a_master_that_does_not_answer_is_named(tmp_path: Path, command: str) -> None:
    """A log is what can be had of it: none. The others must not take the driver for one that has ended."""
    note = Submitted(
        settings=SparkSubmitSettings(deploy_mode="cluster"),
        driver_id="driver-1",
        submission="1",
        fingerprint="",
        rest_server="http://127.0.0.1:1",
        web_page="http://127.0.0.1:1",
    )
    (tmp_path / ID).mkdir()
    (tmp_path / ID / NOTE).write_text(note.model_dump_json())
    found = invoke(command, ID, "--state", str(tmp_path))
    text = "http://127.0.0.1:1/v1/submissions/status/driver-1: does not answer as a standalone master"
    if command == "logs":
        assert (found.code, found.out) == (0, "")
    elif command == "status":
        # Others are shown nevertheless.
        assert found.out.startswith(f"{ID}: STALE - {text}")
    else:
        assert found.code == 1
        assert text in found.err
