"""No tracebacks for a JVM that is gone: whoever needs it gets an exception, and says it in a line.

A driver ends its JVM, and a JVM may be killed. Threads of the libraries between Python and Java that are about
something just then would print what they find, each in its way.
"""

import logging
import socketserver
import sys
from pathlib import Path
from typing import Any

from pyspark.accumulators import AccumulatorTCPServer
from pyspark.errors import PySparkRuntimeError

# How the server for Spark's accumulators, of which this project has none, meets the end of its connection: in reading,
# and, where the other side has reset it, before.
_ENDS = (ConnectionError, EOFError, PySparkRuntimeError)


def be_quiet_about_lost_jvm() -> None:
    """Let neither py4j nor pyspark print what a thread of theirs finds of a JVM that is gone."""
    logging.getLogger("py4j").propagate = False
    # A part it writes as the root's own.
    logging.getLogger().addFilter(_is_not_py4j)
    AccumulatorTCPServer.handle_error = _handle_error  # type: ignore[method-assign, assignment]


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _handle_error(server: AccumulatorTCPServer, request: Any, address: Any) -> None:
    if not isinstance(sys.exception(), _ENDS):
        socketserver.TCPServer.handle_error(server, request, address)
