"""The lines of a driver's log as text and as JSON."""

import json
import re
from typing import Any

import pytest

from glassflow_dagster.control.log import DriverLog, Level, LogFormat, LogPosition, failure_in, log_of

POSITION = LogPosition("checkpoint-id", 7)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def json_log(lines: list[str], position: LogPosition = POSITION) -> DriverLog:
    return DriverLog(lines.append, LogFormat.JSON, pipeline="orders", position=lambda: position)


def entry(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    return found


def test_text_is_written_as_it_is() -> None:
    lines: list[str] = []
    log = DriverLog(lines.append)
    log("starting Spark ...")
    log.warning("the disk is slow")
    log.problem("Kafka at k:1 cannot be reached")
    log.message(Level.INFO, "batch 3: so far read 1,000", {"read": 1000}, batch=3)
    log.relay("WARNING: Using incubator modules")
    assert lines == [
        "starting Spark ...",
        "warning: the disk is slow",
        "Kafka at k:1 cannot be reached",
        "batch 3: so far read 1,000",
        "WARNING: Using incubator modules",
    ]


def test_text_of_records_is_neither_an_entry_of_its_own_nor_a_command_for_a_terminal() -> None:
    lines: list[str] = []
    log = DriverLog(lines.append, is_timed=True)
    log.warning("field 'a\n2026-01-01 00:00:00 failed: no\x1b[2J': is new")
    log.relay("Exception: \x1b[31mred\tthen")
    assert re.fullmatch(f"{TIME} warning: field 'a\n  2026-01-01 00:00:00 failed: no\\\\x1b\\[2J': is new", lines[0])
    assert lines[1] == "Exception: \\x1b[31mred\tthen"
    json_lines: list[str] = []
    json_log(json_lines)("a\nb\x1b")
    assert json_lines[0].isprintable()


def test_timed_text_has_the_time_before_the_drivers_own_messages_only() -> None:
    lines: list[str] = []
    log = DriverLog(lines.append, is_timed=True)
    log("starting Spark ...")
    log.fail("no disk")
    log.relay("java.lang.OutOfMemoryError")
    assert re.fullmatch(f"{TIME} starting Spark ...", lines[0])
    assert re.fullmatch(f"{TIME} failed: no disk", lines[1])
    assert lines[2] == "java.lang.OutOfMemoryError"


@pytest.mark.parametrize(
    ("text", "level", "message"),
    [
        ("starting Spark ...", "info", "starting Spark ..."),
        ("warning: no class archive was made", "warning", "no class archive was made"),
        ("stalled: records wait", "warning", "stalled: records wait"),
        ("LOST: offsets 3 to 7", "warning", "LOST: offsets 3 to 7"),
        ("two\nlines, ü", "info", "two\nlines, ü"),
    ],
)
def test_json_has_the_level_and_the_position_of_every_message(text: str, level: str, message: str) -> None:
    lines: list[str] = []
    json_log(lines)(text)
    (line,) = lines
    assert "\n" not in line
    assert entry(line) == {
        "level": level, "pipeline": "orders", "checkpoint": "checkpoint-id", "batch": 7, "message": message,
    }  # fmt: skip


def test_json_has_null_for_what_is_not_known_yet() -> None:
    lines: list[str] = []
    DriverLog(lines.append, LogFormat.JSON).fail("orders.yaml: does not exist")
    assert entry(lines[0]) == {
        "level": "error", "pipeline": None, "checkpoint": None, "batch": None, "message": "orders.yaml: does not exist",
    }  # fmt: skip


def test_a_batchs_figures_are_numbers_beside_its_message() -> None:
    lines: list[str] = []
    json_log(lines).message(Level.INFO, "batch 8: so far read 1,000", {"read": 1000, "written": 990}, batch=8)
    found = entry(lines[0])
    assert (found["batch"], found["read"], found["written"]) == (8, 1000, 990)


def test_what_the_jvm_prints_is_a_warning() -> None:
    lines: list[str] = []
    json_log(lines).relay('Exception in thread "main"')
    assert (entry(lines[0])["level"], entry(lines[0])["message"]) == ("warning", 'Exception in thread "main"')


def test_a_crash_is_one_line_with_its_traceback() -> None:
    lines: list[str] = []
    try:
        _ = {}["k"]
    except KeyError as error:
        json_log(lines).crash(error)
    found = entry(lines[0])
    assert (found["level"], found["message"]) == ("error", "KeyError: 'k'")
    assert found["traceback"].startswith("Traceback (most recent call last):\n")


def test_a_drivers_last_line_has_its_reason_in_both_formats() -> None:
    lines: list[str] = []
    json_log(lines).fail("no disk")
    json_log(lines)("orders is running")
    assert failure_in(lines[0]) == "no disk"
    assert failure_in(lines[1]) == ""
    assert failure_in("2026-01-31 10:00:00 failed: no disk: a failed: b") == "no disk: a failed: b"
    assert failure_in("java.lang.OutOfMemoryError") == ""
    assert failure_in("17") == ""


def test_any_function_that_takes_text_can_be_a_log() -> None:
    lines: list[str] = []
    log_of(lines.append).warning("w")
    assert lines == ["warning: w"]
    log = DriverLog(lines.append)
    assert log_of(log) is log
