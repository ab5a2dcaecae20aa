"""Options and environment variables of the commands; their effects are tested in the packages and end to end."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from glassflow_dagster.cli import main
from glassflow_dagster.cli.watch import History, overview
from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, write_heartbeat
from glassflow_dagster.control.status import stream_status
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from tests.support import definition as v3


def write_definition(folder: Path, pipeline_id: str, **sink: Any) -> Path:
    """Write a definition with a table `d.t`; `sink` sets keys of its sink."""
    content = v3.definition(pipeline_id, v3.source("s", v3.fields(id="int")), v3.sink({"id": "Int64"}, **sink))
    folder.mkdir(exist_ok=True)
    file = folder / f"{pipeline_id}.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def validated(*arguments: Path | str) -> tuple[int, list[str]]:
    """Return the exit code and the lines of `validate`."""
    found = CliRunner().invoke(main, ["validate", *map(str, arguments)], env={"GLASSFLOW_CLICKHOUSE_URL": ""})
    return found.exit_code, found.stdout.splitlines()


def test_of_several_files_none_may_write_the_table_of_another(tmp_path: Path) -> None:
    first, second = (write_definition(tmp_path, name) for name in ("first", "second"))
    code, lines = validated(first, second)
    assert code == 1
    assert [line.partition(" is also written by ")[0] for line in lines] == [
        f"{first}: sink.table: d.t", f"{second}: sink.table: d.t",
    ]  # fmt: skip
    for file in (first, second):
        write_definition(tmp_path, file.stem, shared_table=True)
    assert validated(first, second) == (0, [])


def test_a_file_of_the_folder_of_pipelines_is_compared_with_the_others_there(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    first, second = (write_definition(folder, name) for name in ("first", "second"))
    (folder / "wrong.yaml").write_text("a: [")
    # The folder is not known to be one of pipelines.
    assert validated(first) == (0, [])
    code, [line] = validated(first, "--pipelines", folder)
    assert code == 1
    assert line.startswith(f"{first}: sink.table: d.t is also written by pipeline 'second' ({second}); name another")
    # A file elsewhere is not of that folder.
    other = write_definition(tmp_path, "third")
    assert validated(other, "--pipelines", folder) == (0, [])


def test_the_state_folder_is_the_one_that_dagster_uses_unless_an_option_names_another(tmp_path: Path) -> None:
    named, other = str(tmp_path / "named"), str(tmp_path / "other")
    found = CliRunner().invoke(main, ["stop", "orders"], env={"GLASSFLOW_STATE": named})
    assert found.exit_code == 1
    assert f"{named}: pipeline 'orders' has never run with this state folder" in found.output
    found = CliRunner().invoke(main, ["stop", "orders", "--state", other], env={"GLASSFLOW_STATE": named})
    assert f"{other}: pipeline 'orders' has never run with this state folder" in found.output


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_run_in_json_reports_its_error_as_json(by: str, tmp_path: Path) -> None:
    file = tmp_path / "missing.yaml"
    options, variables = (["--log-format", "json"], {}) if by == "option" else ([], {"GLASSFLOW_LOG_FORMAT": "json"})
    found = CliRunner().invoke(main, ["run", str(file), *options], env=variables)
    assert (found.exit_code, found.stdout) == (1, "")
    last = json.loads(found.stderr)
    assert (last["level"], last["pipeline"]) == ("error", None)
    assert last["message"].startswith(str(file))


def test_a_run_in_text_reports_its_error_as_ever(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["run", str(tmp_path / "missing.yaml")])
    assert found.exit_code == 1
    assert found.stderr.startswith(str(tmp_path / "missing.yaml"))


def test_an_unknown_log_format_is_wrong_usage() -> None:
    found = CliRunner().invoke(main, ["run", "orders.yaml"], env={"GLASSFLOW_LOG_FORMAT": "yaml"})
    assert found.exit_code == 2
    assert "'yaml' is not one of 'text', 'json'" in found.stderr


def test_a_definition_with_mistakes_hides_no_other_from_the_status(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("a: [")
    (tmp_path / "nameless.yaml").write_text("a: 1")
    (tmp_path / "orders.yaml").write_text("pipeline_id: orders")
    found = CliRunner().invoke(main, ["status", "--pipelines", str(tmp_path), "--state", str(tmp_path / "state")])
    assert (found.exit_code, found.stdout) == (0, "orders: STOPPED - never started here\n")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state folder with the last heartbeat of a driver that joined two topics."""
    folder = tmp_path / "state" / "orders"
    folder.mkdir(parents=True)
    totals = Totals(read=9000, written=4000, duplicates=5, matched=4000, unmatched=30, waiting=12, accepted=4950)
    heartbeat = Heartbeat(
        pipeline_id="orders", state=DriverState.STOPPED, pid=1, process_started="", updated_at=time.time(),
        fingerprint="f", batch_id=7, totals=totals, lag=12, lags={"orders": 10, "users": 2}, state_bytes=2_500_000,
        joins=True,
    )  # fmt: skip
    write_heartbeat(folder, heartbeat)
    return folder.parent


def test_the_status_of_a_join_tells_its_topics_apart_and_what_became_of_the_left_events(state: Path) -> None:
    found = CliRunner().invoke(main, ["status", "orders", "--state", str(state)])
    assert found.exit_code == 0
    assert "  batch 7, lag 12 (orders 10, users 2), in" in found.stdout
    assert "  matched 4,000, unmatched 30, waiting 12, state 2.5 MB\n" in found.stdout


def test_the_status_as_json_has_all_that_the_heartbeat_says_of_a_join(state: Path) -> None:
    found = json.loads(CliRunner().invoke(main, ["status", "orders", "--state", str(state), "--json"]).stdout)
    assert (found["lags"], found["state_bytes"]) == ({"orders": 10, "users": 2}, 2_500_000)
    assert (found["totals"]["accepted"], found["totals"]["waiting"]) == (4950, 12)


def test_the_status_of_one_topic_says_nothing_of_joins(state: Path) -> None:
    folder = state / "orders"
    one = Heartbeat.model_validate_json((folder / "heartbeat.json").read_text())
    write_heartbeat(folder, one.model_copy(update={"lags": {"orders": 12}, "joins": False}))
    found = CliRunner().invoke(main, ["status", "orders", "--state", str(state)]).stdout
    assert "  batch 7, lag 12, in" in found
    assert "matched" not in found


def test_a_message_of_a_driver_sends_no_commands_to_the_terminal(state: Path) -> None:
    folder, message = state / "orders", "new field '\x1b[2J[/red]'"
    one = Heartbeat.model_validate_json((folder / "heartbeat.json").read_text())
    write_heartbeat(folder, one.model_copy(update={"message": message}))
    found = CliRunner().invoke(main, ["status", "orders", "--state", str(state)]).stdout
    assert found.startswith("orders: STOPPED - new field '\\x1b[2J[/red]'\n")
    console = Console(record=True, width=200)
    stream = stream_status(state, "orders")
    console.print(overview({"orders": stream}, {"orders": History()}))
    assert "new field '\\x1b[2J[/red]'" in console.export_text()


def test_a_url_as_state_is_the_store_and_the_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLASSFLOW_STATE", raising=False)
    found = CliRunner().invoke(main, ["stop", "orders", "--state", "s3a://bucket/state"])
    assert found.exit_code == 1
    assert ".glassflow/state: pipeline 'orders' has never run with this state folder" in found.output
    assert "GLASSFLOW_STATE" not in os.environ
    found = CliRunner().invoke(main, ["stop", "orders", "--state", "abfs://bucket/state"])
    assert found.exit_code == 2
    assert "'abfs://bucket/state' is no store for state; write s3a://BUCKET/PREFIX" in found.output


def test_a_folder_without_a_checkpoint_is_not_copied(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["state", "copy", str(tmp_path / "a"), str(tmp_path / "b")])
    assert (found.exit_code, found.stderr.startswith(f"error: {tmp_path / 'a'}: has no checkpoint")) == (1, True)
