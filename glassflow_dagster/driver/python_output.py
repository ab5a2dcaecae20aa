"""Turns what Python and its libraries print by themselves into messages of a driver's log in JSON.

These are records of `logging`, warnings, and exceptions that nobody handles. What a library prints from C directly to
stderr is not caught; librdkafka's own messages are switched off (`kafka.client`).
"""

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from glassflow_dagster.control.log import DriverLog, Level, LogFormat
from glassflow_dagster.errors import GlassflowError


@contextmanager
def python_output(log: DriverLog) -> Iterator[None]:
    """Write to `log`, while the block runs, what Python would print to stderr; do nothing for a log as text.

    An exception that leaves the block is written, too, and replaced by `SystemExit` with code 1.
    """
    if log.format is not LogFormat.JSON:
        yield
        return
    with _hooks(log):
        try:
            yield
        except GlassflowError as error:
            log.fail(str(error))
            sys.exit(1)
        except Exception as error:  # noqa: BLE001 - any that Python itself would print
            log.crash(error)
            sys.exit(1)


@contextmanager
def _hooks(log: DriverLog) -> Iterator[None]:
    """Write records of `logging`, warnings, and exceptions of threads and finalizers to `log` while the block runs."""
    root, handler = logging.getLogger(), _Records(log)
    hooks = threading.excepthook, sys.unraisablehook
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    threading.excepthook = lambda found: _write(log, found.exc_value, found.thread)
    sys.unraisablehook = lambda found: _write(log, found.exc_value, None)
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)


class _Records(logging.Handler):
    """Writes log records as messages."""

    def __init__(self, log: DriverLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, with the traceback of its exception if it has one."""
        error = record.exc_info[1] if record.exc_info else None
        fields = {"traceback": "".join(traceback.format_exception(error))} if error else None
        # A full disk is no failure of the code that logs.
        with suppress(OSError):
            self._log.message(_level(record.levelno), record.getMessage().rstrip(), fields)


def _level(number: int) -> Level:
    """Return the level of a log record."""
    if number >= logging.ERROR:
        return Level.ERROR
    return Level.WARNING if number >= logging.WARNING else Level.INFO


def _write(log: DriverLog, error: BaseException | None, thread: threading.Thread | None) -> None:
    """Write an exception that nobody handles. thread: where it happened, if that is known."""
    # SystemExit ends a thread silently.
    if error is not None and not isinstance(error, SystemExit):
        log.crash(error, f"thread {thread.name}: " if thread else "")
