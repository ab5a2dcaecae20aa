"""The rotation of driver.log, in processes of their own whose stdout and stderr it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassflow_dagster.control import log_file
from glassflow_dagster.control.log_file import OLDER_FILES, rotate_if_full, tail

# 100 numbered lines from two threads, which also print directly; a file holds about ten of them.
WRITER = """
import os, sys
from pathlib import Path
from threading import Thread
from glassflow_dagster.control import log_file
log_file.LIMIT, log_file.OLDER_FILES = 100, 1000
err = log_file.RotatingStderr(Path(sys.argv[1]))
def write(first):
    for number in range(first, first + 50):
        err.write_line(f"line {number}")
        os.write(1, f"out {number}\\n".encode())
threads = [Thread(target=write, args=(first,)) for first in (0, 50)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def run(program: str, log: Path) -> None:
    with log.open("ab") as output:
        subprocess.run([sys.executable, "-c", program, str(log)], stdout=output, stderr=output, check=True)


def files(log: Path) -> list[Path]:
    return sorted(log.parent.glob("driver.log*"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "driver.log"


def test_a_rotation_loses_and_doubles_no_line(log: Path) -> None:
    run(WRITER, log)
    lines = [line for file in files(log) for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{name} {number}" for name in ("line", "out") for number in range(100))
    assert len(files(log)) > 5
    # Only what is printed directly, at most one line of each thread here, comes on top.
    assert all(file.stat().st_size < 200 for file in files(log))


def test_a_log_that_cannot_be_rotated_is_written_on(log: Path) -> None:
    log.with_name("driver.log.1").mkdir()
    run(WRITER.replace("100, 1000", "100, 1"), log)
    assert len(log.read_text().splitlines()) == 200


def test_stdout_that_leads_elsewhere_stays_there(log: Path) -> None:
    program = WRITER.replace("os.write(1,", "os.write(1, b'' if first else")
    with log.open("ab") as output:
        done = subprocess.run(
            [sys.executable, "-c", program, str(log)], stdout=subprocess.PIPE, stderr=output, check=True
        )
    assert len(done.stdout.splitlines()) == 50


def test_the_log_and_three_older_ones_are_kept(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "LIMIT", 1)
    for number in range(6):
        log.write_text(str(number))
        rotate_if_full(log)
        assert not log.exists()
    rotate_if_full(log)  # there is none
    assert [file.read_text() for file in files(log)] == ["5", "4", "3"]
    assert len(files(log)) == OLDER_FILES


def test_a_log_that_is_not_full_is_continued(log: Path) -> None:
    log.write_text("a\n")
    rotate_if_full(log)
    assert files(log) == [log]


def test_the_tail_begins_where_it_was_asked_to_across_a_rotation(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write_text("before\n")
    with log.open("ab") as opened:
        since = os.fstat(opened.fileno())
        opened.write(b"first\n")
    assert tail(log, since) == "first"
    assert tail(log) == "before\nfirst"
    monkeypatch.setattr(log_file, "LIMIT", 1)
    rotate_if_full(log)
    log.write_text("second\n")
    assert tail(log, since) == "first\nsecond"


def test_the_tail_is_forty_lines_at_most(log: Path) -> None:
    log.write_text("".join(f"{number}\n" for number in range(100)))
    assert tail(log).splitlines() == [str(number) for number in range(60, 100)]
