"""A driver's messages: lines of text for people or, on request, one JSON object per line for a log collector.

A line of JSON has `time`, `level`, `pipeline`, `checkpoint`, `batch` and `message`; the line of a batch also has its
figures, and that of an unexpected error its `traceback`. Spark's own log, `spark.log`, stays text in both formats: its
layout is that of log4j2.properties, and log collectors know it.
"""

import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from glassflow_dagster.runtime.safe_text import log_entry

# The environment variable with the format of a driver that no option gives one.
LOG_FORMAT = "GLASSFLOW_LOG_FORMAT"

# Begins the reason in a driver's last line as text, after the time.
_FAILED = "failed: "
_WARNING = "warning: "
# Messages that come from layers which only have a function for text: how those that are more than progress begin.
_WARNINGS = (_WARNING, "stalled: ", "LOST: ")


class LogFormat(StrEnum):
    """The format of a driver's messages."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """The level of a message in JSON; text says it in words."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class LogPosition:
    """Where a pipeline is: its checkpoint, and the last batch that was written; None for what is not known yet."""

    checkpoint: str | None = None
    batch: int | None = None


def log_format(environment: Mapping[str, str] = os.environ) -> str:
    """Return the format that the environment sets, without checking it; `text` where it sets none."""
    return environment.get(LOG_FORMAT) or LogFormat.TEXT


@dataclass
class DriverLog:
    """Writes a driver's messages; may be called from several threads if `write` may.

    write: writes a line, given without its end.
    is_timed: text lines begin with the local time.
    takes_jvm_output: what Spark's JVM and the Python workers print becomes messages, too; otherwise they print to this
        process's stdout and stderr.
    pipeline: its id, None until the definition is loaded.
    position: returns where the pipeline is.
    """

    write: Callable[[str], None]
    format: LogFormat = LogFormat.TEXT
    is_timed: bool = False
    takes_jvm_output: bool = False
    pipeline: str | None = None
    position: Callable[[], LogPosition] = LogPosition

    def __call__(self, text: str) -> None:
        """Write progress, or a warning where the text begins like one."""
        self.message(Level.WARNING if text.startswith(_WARNINGS) else Level.INFO, text)

    def warning(self, text: str) -> None:
        """Write a problem that does not stop the run."""
        self.message(Level.WARNING, f"{_WARNING}{text}")

    def problem(self, text: str) -> None:
        """Write a problem whose text says so itself, such as a server that does not answer."""
        self.message(Level.WARNING, text)

    def fail(self, text: str) -> None:
        """Write the error that ends the driver."""
        self.message(Level.ERROR, f"{_FAILED}{text}")

    def crash(self, error: BaseException, context: str = "") -> None:
        """Write an unexpected error with its traceback. context: where it happened, if not in the main thread."""
        lines = traceback.format_exception(error)
        self.message(Level.ERROR, f"{context}{type(error).__name__}: {error}", {"traceback": "".join(lines)})

    def relay(self, line: str) -> None:
        """Write a line that the JVM or a Python worker has printed: as it is, or as the message of a JSON object."""
        # What they print is an exception: their own messages are in spark.log.
        self.write(self._json(Level.WARNING, line, {}, None) if self.format is LogFormat.JSON else log_entry(line))

    def message(
        self, level: Level, text: str, fields: Mapping[str, Any] | None = None, batch: int | None = None
    ) -> None:
        """Write a message.

        fields, batch: for JSON only.
        batch: the one that it is about, by default the last one.
        """
        if self.format is LogFormat.JSON:
            self.write(self._json(level, text, fields or {}, batch))
        else:
            entry = log_entry(text)
            self.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {entry}" if self.is_timed else entry)

    def _json(self, level: Level, text: str, fields: Mapping[str, Any], batch: int | None) -> str:
        """Return a message as JSON, without the words that `level` already says."""
        position = self.position()
        return json.dumps({
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level.value,
            "pipeline": self.pipeline,
            "checkpoint": position.checkpoint,
            "batch": position.batch if batch is None else batch,
            "message": text.removeprefix(_WARNING).removeprefix(_FAILED),
            **fields,
        })  # fmt: skip


def log_of(report: Callable[[str], None]) -> DriverLog:
    """Return the log that `report` is, or a log as text that passes its lines to the function `report`."""
    return report if isinstance(report, DriverLog) else DriverLog(report)


def message_in(line: str) -> str:
    """Return the message of a driver's line in either format, without its time."""
    try:
        entry = json.loads(line)
    except ValueError:
        # A date and a time of day.
        return line.split(" ", 2)[-1]
    return str(entry.get("message", "")) if isinstance(entry, dict) else line


def failure_in(line: str) -> str:
    """Return the reason of a driver's end from its last line, in either format; '' where the line has none."""
    try:
        entry = json.loads(line)
    except ValueError:
        return line.partition(f" {_FAILED}")[2]
    is_failure = isinstance(entry, dict) and entry.get("level") == Level.ERROR
    return str(entry.get("message", "")) if is_failure else ""
