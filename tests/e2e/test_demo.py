"""The demo, as a newcomer runs it, but on ports and in a folder of its own; it compares with counts of its own."""

import os
import subprocess
import sys
from pathlib import Path

from glassflow_dagster.local.ports import free_port
from tests.e2e.support import cli


def test_the_demo_ends_well_and_says_what_arrived(tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(Path("pipelines").absolute())
    ports = {"GLASSFLOW_KAFKA_PORT": str(free_port()), "GLASSFLOW_CLICKHOUSE_PORT": str(free_port())}
    # Enough events for Java's thorough compilation, which the other tests go without.
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "glassflow_dagster.demo"],
            cwd=tmp_path, env={**environment, **ports, "COLUMNS": "120"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    finally:
        cli("stack", "down", "--data", str(tmp_path / ".glassflow"))
    assert done.returncode == 0, done.stderr
    figures = {
        cells[1].strip(): (cells[2].strip(), cells[3].strip())
        for line in done.stdout.splitlines()
        if len(cells := line.split("│")) == 5
    }
    assert figures == {
        "events in Kafka (counted apart)": ("5", "370,453"),
        "read": ("5", "370,453"),
        "duplicates dropped": ("3", "33,677"),
        "dead letters": ("0", "0"),
        "written": ("2", "336,776"),
        "unique events sent (counted apart)": ("2", "336,776"),
        "rows in ClickHouse (counted apart)": ("2", "336,776"),
        "residual duplicates (counted apart)": ("0", "0"),
    }
    assert "all values of the flights equal the file's" in " ".join(done.stderr.split())
