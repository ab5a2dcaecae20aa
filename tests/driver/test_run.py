"""The driver's command line and its messages, up to the first error before a session is opened."""

import json
from pathlib import Path

import pytest

from glassflow_dagster.control.log import LOG_FORMAT, DriverLog, LogPosition
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver import run as module
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.outcomes import Totals


@pytest.fixture
def arguments(definition: Path, tmp_path: Path) -> list[str]:
    return ["--definition", str(definition), "--state", str(tmp_path / "state")]


def failing(error: Exception | None) -> object:
    def run_pipeline(_: PipelineConfig, __: RunOptions, log: DriverLog) -> Totals:
        log.position = lambda: LogPosition("c", 4)
        log("finishing the batch ...")
        if error:
            raise error
        return Totals(read=3)

    return run_pipeline


def test_a_wrong_format_in_the_environment_is_wrong_usage(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(LOG_FORMAT, "yaml")
    with pytest.raises(SystemExit) as ended:
        module.main(arguments)
    assert ended.value.code == 2
    assert "argument --log-format: invalid LogFormat value: 'yaml'" in capfd.readouterr().err


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_failure_is_a_json_line_with_the_position(
    by: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "run_pipeline", failing(GlassflowError("no disk")))
    if by == "environment":
        monkeypatch.setenv(LOG_FORMAT, "json")
    assert module.main([*arguments, *(["--log-format", "json"] if by == "option" else [])]) == 1
    first, last = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert (first["level"], first["message"]) == ("info", "finishing the batch ...")
    assert {name: last[name] for name in last if name != "time"} == {
        "level": "error", "pipeline": "sms_status", "checkpoint": "c", "batch": 4, "message": "no disk",
    }  # fmt: skip


def test_a_crash_is_a_json_line_with_its_traceback(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "run_pipeline", failing(KeyError("k")))
    with pytest.raises(SystemExit) as ended:
        module.main([*arguments, "--log-format", "json"])
    assert ended.value.code == 1
    last = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert (last["message"], last["batch"]) == ("KeyError: 'k'", 4)
    assert "Traceback" in last["traceback"]


def test_text_is_the_default_and_an_option_goes_before_the_environment(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "run_pipeline", failing(GlassflowError("no disk")))
    assert module.main(arguments) == 1
    monkeypatch.setenv(LOG_FORMAT, "json")
    assert module.main([*arguments, "--log-format", "text"]) == 1
    lines = [line[20:] for line in capfd.readouterr().err.splitlines()]
    assert lines == 2 * ["finishing the batch ...", "failed: no disk"]


def test_the_totals_stay_on_stdout(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "run_pipeline", failing(None))
    assert module.main([*arguments, "--log-format", "json", "--print-totals"]) == 0
    assert json.loads(capfd.readouterr().out)["read"] == 3
