"""The demo as a new user runs it, on other ports and in another folder; it verifies its results itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassflow_dagster.local.ports import free_port
from tests.e2e.support import cli


# seconds for four drivers in sequence: each takes a quarter of a minute, but minutes on a busy machine
@pytest.mark.timeout(900)
def test_the_demo_ends_well_and_says_what_arrived(tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(Path("pipelines").absolute())
    ports = {"GLASSFLOW_KAFKA_PORT": str(free_port()), "GLASSFLOW_CLICKHOUSE_PORT": str(free_port())}
    # Without the limit of the tests' JVMs to quick compilation: there are enough events to benefit from a thorough one.
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "glassflow_dagster.local.demo"],
            cwd=tmp_path, env={**environment, **ports, "COLUMNS": "120"},
            capture_output=True, text=True, timeout=850, check=False,
        )  # fmt: skip
    finally:
        cli("stack", "down", "--data", str(tmp_path / ".glassflow"))
    assert done.returncode == 0, done.stderr
    arrived, was_joined = (figures(part) for part in done.stdout.split("What was joined"))
    assert arrived == {
        "events in Kafka (counted again)": ("5", "370,453"),
        "read": ("5", "370,453"),
        "duplicates dropped": ("3", "33,677"),
        "dead letters": ("0", "0"),
        "written": ("2", "336,776"),
        "unique events sent (counted again)": ("2", "336,776"),
        "rows in ClickHouse (counted again)": ("2", "336,776"),
        "residual duplicates (counted again)": ("0", "0"),
    }
    assert was_joined == {
        "left events in Kafka (counted again)": ("11,000", "29,704"),
        "right events in Kafka (counted again)": ("2,640", "2,448"),
        "read": ("13,640", "32,152"),
        "duplicates dropped": ("1,240", "2,922"),
        "dead letters": ("0", "0"),
        "late": ("0", "0"),
        "matched": ("9,485", "26,022"),
        "unmatched": ("220", "52"),
        "waiting": ("295", "930"),
        "written": ("9,705", "26,074"),
        "rows expected (computed again)": ("9,705", "26,074"),
        "rows in ClickHouse (counted again)": ("9,705", "26,074"),
        "of them without a match (counted again)": ("220", "52"),
    }
    said = " ".join(done.stderr.split())
    assert "all values of the flights equal the file's" in said
    assert "all joined rows equal those recomputed" in said
    kafka, clickhouse = (f"127.0.0.1:{port}" for port in ports.values())
    assert f"Kafka ({kafka}) and ClickHouse ({clickhouse}) run on. Stop them with: " in said
    assert "bin/glassflow-dagster stack down" in said
    exports = f"export GLASSFLOW_KAFKA_BROKERS={kafka} GLASSFLOW_CLICKHOUSE_URL=http://{clickhouse}"
    assert exports in said


def figures(table: str) -> dict[str, tuple[str, str]]:
    """Parse a printed table of two pipelines: label -> the values of the first and the second."""
    lines = [[cell.strip() for cell in line.split("│")] for line in table.splitlines()]
    return {cells[1]: (cells[2], cells[3]) for cells in lines if len(cells) == 5}
