"""Suppresses the tracebacks that py4j and pyspark print when the JVM has ended.

A driver ends its JVM, and a JVM may be killed. Code that calls the JVM then gets an exception and reports it in one
line; but background threads of py4j and pyspark would also print tracebacks of their own.
"""

import logging
import socketserver
import sys
from pathlib import Path
from typing import Any

from pyspark.accumulators import AccumulatorTCPServer
from pyspark.errors import PySparkRuntimeError

# The errors of the server for Spark's accumulators (which this project does not use) when its connection ends.
_ENDS = (ConnectionError, EOFError, PySparkRuntimeError)


def be_quiet_about_lost_jvm() -> None:
    """Stop py4j and pyspark from printing tracebacks when the JVM has ended."""
    logging.getLogger("py4j").propagate = False
    # py4j also logs through the root logger directly.
    logging.getLogger().addFilter(_is_not_py4j)
    AccumulatorTCPServer.handle_error = _handle_error  # type: ignore[method-assign, assignment]


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Return False for log records from py4j's files, so that the root logger drops them."""
    return Path(record.pathname).parent.name != "py4j"


def _handle_error(server: AccumulatorTCPServer, request: Any, address: Any) -> None:
    """Handle an error of the accumulator server: ignore the end of its connection, print anything else."""
    if not isinstance(sys.exception(), _ENDS):
        socketserver.TCPServer.handle_error(server, request, address)
