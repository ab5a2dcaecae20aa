"""`dagster dev` in the background."""

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.steady_state import end
from glassflow_dagster.local.ports import free_port

START_SECONDS = 300.0


@contextmanager
def running_dagster(
    environment: Mapping[str, str], *options: str, folder: Path | None = None
) -> Iterator[tuple[int, int]]:
    """Run `dagster dev` while the block runs, in `folder`; yield its process and its port."""
    # SIGTERM, not SIGINT: commands that a shell starts in the background ignore SIGINT, and so do their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    port = free_port()
    command = [str(Path(sys.executable).with_name("dagster")), "dev", "--port", str(port), *options]
    process = subprocess.Popen(
        command,
        env={**environment, "DAGSTER_DISABLE_TELEMETRY": "1"},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await(port)
        yield process.pid, port
    finally:
        end(process)


def _await(port: int) -> None:
    """Wait until Dagster's web server answers; raise SystemExit after `START_SECONDS`."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit("dagster dev did not come up")
