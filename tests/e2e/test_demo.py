"""The demo, as a newcomer runs it, but on ports and in a folder of its own; it compares with counts of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassflow_dagster.local.ports import free_port
from tests.e2e.support import cli


# Four drivers one after the other: each a quarter of a minute, but minutes on a machine that is busy otherwise.
@pytest.mark.timeout(900)
def test_the_demo_ends_well_and_says_what_arrived(tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(Path("pipelines").absolute())
    ports = {"GLASSFLOW_KAFKA_PORT": str(free_port()), "GLASSFLOW_CLICKHOUSE_PORT": str(free_port())}
    # Enough events for Java's thorough compilation, which the other tests go without.
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "glassflow_dagster.demo"],
            cwd=tmp_path, env={**environment, **ports, "COLUMNS": "120"},
            capture_output=True, text=True, timeout=850, check=False,
        )  # fmt: skip
    finally:
        cli("stack", "down", "--data", str(tmp_path / ".glassflow"))
    assert done.returncode == 0, done.stderr
    arrived, was_joined = (figures(part) for part in done.stdout.split("What was joined"))
    assert arrived == {
        "events in Kafka (counted apart)": ("5", "370,453"),
        "read": ("5", "370,453"),
        "duplicates dropped": ("3", "33,677"),
        "dead letters": ("0", "0"),
        "written": ("2", "336,776"),
        "unique events sent (counted apart)": ("2", "336,776"),
        "rows in ClickHouse (counted apart)": ("2", "336,776"),
        "residual duplicates (counted apart)": ("0", "0"),
    }
    assert was_joined == {
        "left events in Kafka (counted apart)": ("11,000", "29,704"),
        "right events in Kafka (counted apart)": ("2,640", "2,448"),
        "read": ("13,640", "32,152"),
        "duplicates dropped": ("1,240", "2,922"),
        "dead letters": ("0", "0"),
        "late": ("0", "0"),
        "matched": ("9,485", "26,022"),
        "unmatched": ("220", "52"),
        "waiting": ("295", "930"),
        "written": ("9,705", "26,074"),
        "rows expected (computed apart)": ("9,705", "26,074"),
        "rows in ClickHouse (counted apart)": ("9,705", "26,074"),
        "of them without a match (counted apart)": ("220", "52"),
    }
    said = " ".join(done.stderr.split())
    assert "all values of the flights equal the file's" in said
    assert "all joined rows equal those recomputed" in said


def figures(table: str) -> dict[str, tuple[str, str]]:
    """Read a printed table of two pipelines: what each line says of the first and of the second."""
    lines = [[cell.strip() for cell in line.split("│")] for line in table.splitlines()]
    return {cells[1]: (cells[2], cells[3]) for cells in lines if len(cells) == 5}
