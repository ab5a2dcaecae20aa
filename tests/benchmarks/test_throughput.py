"""The Dagster process that the throughput benchmark runs beside the pipeline."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.servers
@pytest.mark.long
def test_dagster_ends_when_asked_also_below_a_shells_command_in_the_background(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from benchmarks.stack import Stack; "
        "from benchmarks.throughput import running_dagster\n"
        "with running_dagster(Stack(Path(sys.argv[1]), '127.0.0.1:1', 1, 1, 0, 0)): print('is up')"
    )
    # A shell's background command ignores SIGINT, and its children inherit that.
    kept = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, kept)
    assert (done.returncode, done.stdout, done.stderr) == (0, "is up\n", "")
