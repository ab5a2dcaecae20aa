"""The launch of a driver's JVM, beside the checks of a start: whatever ends the start, ends the JVM."""

import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own, as a process has one JVM.
PROGRAM = """
import os, sys, time
from pathlib import Path
from glassflow_dagster.driver.jvm import launching_jvm
from glassflow_dagster.control.lock import MARK, PipelineLock
from glassflow_dagster.control.log import log_of
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import started_with

folder, settings, answers = Path(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[3:]), sys.argv[2] == "yes"
with PipelineLock(folder) as lock:
    with lock.marking():
        mark = os.environ[MARK]
    try:
        with launching_jvm("test", folder, settings, lock, log_of(lambda _: None)) as launch:
            if answers:
                launch.result()
            else:
                while not started_with(MARK, mark) and not launch.done():
                    time.sleep(0.01)
            raise RuntimeError("a check has failed")
    except RuntimeError:
        print(type(launch.exception()).__name__, started_with(MARK, mark))
"""


@pytest.mark.parametrize(
    ("answers", "settings", "outcome"),
    [
        ("no", (), "GlassflowError {}"),
        ("yes", (), "NoneType {}"),
        ("no", ("spark.driver.memory=x",), "GlassflowError {}"),
    ],
)
def test_a_failed_check_ends_the_jvm_that_starts_beside_it(
    tmp_path: Path, answers: str, settings: tuple[str, ...], outcome: str
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), answers, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == outcome, done.stderr
    assert not (tmp_path / "tmp").exists()
