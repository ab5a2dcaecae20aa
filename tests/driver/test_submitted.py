"""The driver that a cluster starts: what it is told, by what it ends, and what its exit code tells the cluster."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glassflow_dagster.control.sent_definition import SentDefinition
from glassflow_dagster.control.submission import STOPPED, SUBMISSION, Submission
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver import submitted
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.errors import Fenced, GlassflowError
from tests.support.waiting import wait_until

Drives = Callable[[Exception | None], list[tuple[PipelineConfig, RunOptions]]]
# A process that starts another one, which is to end with it, and prints the other one's id.
STARTER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
time.sleep(600)
"""
CHILD = """
import signal, sys, time
from glassflow_dagster.driver.submitted import end_with_parent
signal.signal(signal.SIGTERM, lambda *_: (open({file!r}, "w").close(), sys.exit(0)))
end_with_parent()
open({ready!r}, "w").close()
time.sleep(600)
"""


@pytest.fixture
def config(definition: Path) -> PipelineConfig:
    return load_pipeline(definition)


@pytest.fixture
def submission(config: PipelineConfig, tmp_path: Path) -> Submission:
    sent = SentDefinition(file=None, definition=config.content, is_content=True)
    return Submission(definition=sent, state=tmp_path / "state", create_table=True, spark={"spark.x": "1"})


@pytest.fixture
def drives(monkeypatch: pytest.MonkeyPatch) -> Drives:
    """Return a function that makes drivers end with an error, or in good order, and returns what they are told."""

    def prepare(error: Exception | None) -> list[tuple[PipelineConfig, RunOptions]]:
        told: list[tuple[PipelineConfig, RunOptions]] = []

        def drive(config: PipelineConfig, options: RunOptions, _log: object) -> None:
            told.append((config, options))
            if error:
                raise error

        monkeypatch.setattr(submitted, "drive", drive)
        monkeypatch.setattr(submitted, "end_with_parent", lambda: None)
        return told

    return prepare


def test_a_submission_is_what_was_sent(submission: Submission, config: PipelineConfig) -> None:
    decoded = Submission.decode(submission.encoded())
    assert decoded == submission
    assert decoded.definition.load().fingerprint == config.fingerprint


def test_a_driver_does_what_its_environment_says_and_hides_it(
    submission: Submission, drives: Drives,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    told = drives(None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SUBMISSION, submission.encoded())
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    assert submitted.main([]) == 0
    [(config, options)] = told
    assert config == submission.definition.load()
    assert options.create_table
    assert options.spark == {
        "spark.x": "1", "spark.driver.host": "10.0.0.7", "spark.driver.bindAddress": "10.0.0.7",
    }  # fmt: skip
    assert SUBMISSION not in os.environ
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert capfd.readouterr().err.endswith(f" {STOPPED}\n")


def test_the_settings_that_the_cluster_has_for_its_driver_count(
    submission: Submission, drives: Drives,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    told = drives(None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spark.properties").write_text(
        "spark.master=k8s\\://https\\://kubernetes\nspark.driver.host=orders-svc\nspark.jars=x.jar\nspark.x=2\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_DRIVER_BIND_ADDRESS", "10.0.0.9")
    file = tmp_path / "submission.json"
    file.write_text(submission.model_dump_json())
    assert submitted.main([str(file)]) == 0
    [(_, options)] = told
    assert options.spark == {
        "spark.master": "k8s://https://kubernetes", "spark.driver.host": "orders-svc", "spark.x": "1",
        "spark.driver.bindAddress": "10.0.0.9",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (GlassflowError("ClickHouse is away; start it"), 1, "failed: ClickHouse is away; start it"),
        # Another one runs the pipeline: the cluster must not start this one again.
        (Fenced("a newer driver runs it"), 0, "a newer driver runs it; this driver ends, and is not started again"),
    ],
)
def test_the_exit_code_says_whether_the_cluster_starts_it_again(
    submission: Submission, drives: Drives,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    error: Exception, code: int, text: str,
) -> None:  # fmt: skip
    drives(error)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SUBMISSION, submission.encoded())
    assert submitted.main([]) == code
    assert text in capfd.readouterr().err


@pytest.mark.parametrize("text", [None, "", "AAAA"])
def test_a_submission_that_cannot_be_read_is_an_error_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(SUBMISSION, raising=False)
    if text is not None:
        monkeypatch.setenv(SUBMISSION, text)
    assert submitted.main([]) == 1
    assert "failed: the submission cannot be read (" in capfd.readouterr().err


def test_a_driver_stops_in_good_order_when_the_process_ends_that_has_started_it(tmp_path: Path) -> None:
    stopped, ready = tmp_path / "stopped", tmp_path / "ready"
    child = CHILD.format(file=str(stopped), ready=str(ready))
    with subprocess.Popen([sys.executable, "-c", STARTER, child], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        wait_until(ready.exists, "the child runs")
        os.kill(starter.pid, signal.SIGKILL)
    wait_until(stopped.exists, "the child was asked to stop")
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "the child has ended")


def _is_zombie(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def test_output_goes_on_when_the_pipe_is_gone(tmp_path: Path) -> None:
    """A standalone worker writes what its driver prints to the file `stdout`; the driver then writes there itself."""
    (tmp_path / "stdout").write_text("of before\n")
    program = (
        "import os, sys\n"
        "from glassflow_dagster.driver import submitted\n"
        "submitted.main([])\n"
        "os.write(1, b'of the process\\n')\n"
    )
    reader, writer = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=writer, stderr=writer)
    os.close(writer)
    os.close(reader)
    assert process.wait(60) == 0
    lines = (tmp_path / "stdout").read_text().splitlines()
    assert lines[0] == "of before"
    assert "failed: the submission cannot be read" in lines[1]
    assert lines[2] == "of the process"


def test_the_wait_for_a_clean_end_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not end by itself is killed."""
    sent: list[signal.Signals] = []
    monkeypatch.setattr(submitted.os, "kill", lambda _pid, number: sent.append(number))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    submitted.watch_parent(parent=-1)
    assert sent == [signal.SIGTERM, signal.SIGKILL]
