"""Take the screenshots of the documentation from the running product: `make screenshots`; needs Chromium on the PATH.

The demo's pipelines run on the embedded stack in `.glassflow/`; Dagster materializes them and runs their checks.
Another Dagster project is made in a temporary folder. With names of files as arguments, only those are taken.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from example_project import example_project

from tests.support.pictures import find_chromium, take_picture

PROJECT = Path(__file__).parents[1]
ASSETS = PROJECT / "docs" / "assets"
PORT = int(os.environ.get("GLASSFLOW_DAGSTER_PORT", "3000"))
KAFKA_PORT = int(os.environ.get("GLASSFLOW_KAFKA_PORT", "9092"))
CLICKHOUSE_PORT = int(os.environ.get("GLASSFLOW_CLICKHOUSE_PORT", "8123"))
# File -> Dagster page, and width and height in pixels: of the demo, and of another Dagster project.
PAGES = {
    "lineage.png": ("locations/glassflow/asset-groups/sms_status/lineage", (1700, 560)),
    "lineage_of_a_join.png": ("locations/glassflow/asset-groups/orders_with_users/lineage", (1900, 760)),
}
_GROUPS = ",".join(f"global@global:{group}" for group in ("orders", "payments", "default"))
PROJECT_PAGES = {"dagster_project.png": (f"asset-groups?expanded={_GROUPS}", (1900, 940))}
_UP_SECONDS = 180.0


def main() -> int:
    """Write the screenshots to docs/assets; return the exit code."""
    if find_chromium() is None:
        print("no Chromium on the PATH: install it, for instance by `apt-get install chromium`", file=sys.stderr)
        return 1
    wanted = set(sys.argv[1:]) or {*PAGES, *PROJECT_PAGES}
    if unknown := wanted - {*PAGES, *PROJECT_PAGES}:
        print(f"no screenshot is named {', '.join(sorted(unknown))}", file=sys.stderr)
        return 1
    if wanted & {*PAGES}:
        _run("-m", "glassflow_dagster.local.demo")
        with _dagster():
            _run("-m", "dagster", "asset", "materialize", "--select", "*", "-m", "glassflow_dagster.definitions")
            _take_all(PAGES, wanted)
    if wanted & {*PROJECT_PAGES}:
        with example_project(KAFKA_PORT, CLICKHOUSE_PORT) as project, project.served(PORT) as dev:
            _wait_until_up(dev)
            project.materialize()
            _take_all(PROJECT_PAGES, wanted)
    return 0


@contextmanager
def _dagster() -> Iterator[None]:
    """Run `make dev` in the background while the block runs."""
    command = [sys.executable, "-m", "glassflow_dagster.cli.dev", "--port", str(PORT)]
    with subprocess.Popen(command, cwd=PROJECT) as process:
        try:
            _wait_until_up(process)
            yield
        finally:
            process.send_signal(signal.SIGINT)


def _wait_until_up(process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _UP_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/server_info", timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"Dagster did not come up on port {PORT}: {error}") from error
        time.sleep(0.5)


def _run(*arguments: str) -> None:
    """Run a Python command against the embedded stack, with the Dagster home of `make dev`."""
    environment = {
        "GLASSFLOW_KAFKA_BROKERS": f"127.0.0.1:{KAFKA_PORT}",
        "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{CLICKHOUSE_PORT}",
        "DAGSTER_HOME": str(PROJECT / ".glassflow" / "dagster"),
        **os.environ,
    }
    subprocess.run([sys.executable, *arguments], cwd=PROJECT, env=environment, check=True)


def _take_all(pages: dict[str, tuple[str, tuple[int, int]]], wanted: set[str]) -> None:
    for name, (page, size) in pages.items():
        if name in wanted:
            take_picture(f"http://127.0.0.1:{PORT}/{page}", size, ASSETS / name)
            print((ASSETS / name).relative_to(PROJECT))


if __name__ == "__main__":
    sys.exit(main())
