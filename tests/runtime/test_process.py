import os
import sys
from pathlib import Path

from glassflow_dagster.runtime.process import read_process, start_of, start_process, write_process
from tests.support.waiting import wait_until

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def test_a_process_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start_process([sys.executable, "-c", STUBBORN], 1, log, {})
    wait_until(lambda: "ready" in log.read_text(), "the process is up")
    process.end(0.2)
    assert not process.alive()
    assert start_of(process.pid) is None


def test_a_process_has_a_session_of_its_own_so_that_the_terminal_does_not_end_it(tmp_path: Path) -> None:
    process = start_process([sys.executable, "-c", STUBBORN], 1, tmp_path / "log", {})
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    process.end(0.2)


def test_a_record_finds_its_process_again(tmp_path: Path) -> None:
    process = start_process([sys.executable, "-c", STUBBORN], 9092, tmp_path / "log", {})
    write_process(process, tmp_path / "record.json")
    assert read_process(tmp_path / "record.json") == process
    assert process.alive()
    process.end(0.2)
    assert read_process(tmp_path / "absent.json") is None
