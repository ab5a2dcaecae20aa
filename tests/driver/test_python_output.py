"""What Python and its libraries print becomes lines of a log in JSON, and stays as it is with text."""

import json
import logging
import subprocess
import sys

# Everything that a library may print through Python; then the process ends with `END`.
PROGRAM = """
import logging, sys, threading, warnings
from glassflow_dagster.control.log import DriverLog, LogFormat
from glassflow_dagster.control.log_file import write_to_stderr
from glassflow_dagster.driver.python_output import python_output
from glassflow_dagster.errors import GlassflowError
def fail(text): raise ValueError(text)
class Unlucky:
    def __del__(self): fail("finalizer")
with python_output(DriverLog(write_to_stderr, LogFormat(sys.argv[1]))):
    logging.getLogger("library").warning("slow %s", "disk")
    try: fail("caught")
    except ValueError: logging.getLogger("library").exception("oops")
    logging.getLogger("library").info("not of interest")
    warnings.warn("old function")
    thread = threading.Thread(target=fail, args=("in a thread",), name="t1")
    thread.start(); thread.join()
    Unlucky()
    raise END
"""


def run(log_format: str, end: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("END", end), log_format], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_everything_is_one_object_per_line() -> None:
    code, err = run("json", "KeyError('k')")
    assert code == 1
    found = [json.loads(line) for line in err.splitlines()]
    assert [(each["level"], each["message"].splitlines()[0]) for each in found if "old" not in each["message"]] == [
        ("warning", "slow disk"),
        ("error", "oops"),
        ("error", "thread t1: ValueError: in a thread"),
        ("error", "ValueError: finalizer"),
        ("error", "KeyError: 'k'"),
    ]
    (warned,) = (each for each in found if "old" in each["message"])
    assert warned["level"] == "warning"
    assert "UserWarning: old function" in warned["message"]
    assert all(each["traceback"].startswith("Traceback") for each in found if each["level"] == "error")


def test_an_error_that_users_can_act_on_is_its_message_alone() -> None:
    code, err = run("json", "GlassflowError('free disk space')")
    last = json.loads(err.splitlines()[-1])
    assert (code, last["level"], last["message"]) == (1, "error", "free disk space")
    assert "traceback" not in last


def test_text_stays_what_python_prints() -> None:
    code, err = run("text", "KeyError('k')")
    assert code == 1
    assert err.startswith("slow disk\noops\nTraceback (most recent call last):\n")
    assert err.endswith("KeyError: 'k'\n")


def test_nothing_is_left_behind_in_this_process() -> None:
    from glassflow_dagster.control.log import DriverLog, LogFormat
    from glassflow_dagster.driver.python_output import python_output

    before = (list(logging.getLogger().handlers), sys.unraisablehook)
    with python_output(DriverLog(print, LogFormat.JSON)):
        assert list(logging.getLogger().handlers) != before[0]
    assert (list(logging.getLogger().handlers), sys.unraisablehook) == before
