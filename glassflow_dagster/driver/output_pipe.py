"""Reads what Spark's JVM and the Python workers print, line by line.

The JVM gets the pipe as its stdout and stderr; the workers' output passes through the JVM. Normally that is one line at
the start (`WARNING: Using incubator modules`); during an outage of ClickHouse the workers' retries, and at a crash of
the JVM its last words.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import BinaryIO

# All writers have been killed by then, unless the system cannot find a Python worker (macOS).
_END_SECONDS = 5.0
# A longer line is passed on in parts, so that no output fills the memory.
_LONGEST_LINE = 64 * 1024  # bytes


@contextmanager
def reading_lines(write_line: Callable[[str], None]) -> Iterator[int]:
    """Yield a file descriptor to write to; call `write_line` on a thread with each line, without its end.

    The block must end after the processes that write: then all that they have written is passed on.
    """
    read_end, write_end = os.pipe()
    thread = Thread(target=_pass_on, args=(os.fdopen(read_end, "rb"), write_line), name="output", daemon=True)
    thread.start()
    try:
        yield write_end
    finally:
        os.close(write_end)
        thread.join(_END_SECONDS)


def _pass_on(stream: BinaryIO, write_line: Callable[[str], None]) -> None:
    """Pass on the lines of a pipe until all its writers have closed it."""
    with stream:
        while line := stream.readline(_LONGEST_LINE):
            # A full disk must not stop the reading: the pipe would fill up, and the JVM wait for it.
            with suppress(OSError):
                write_line(line.decode(errors="backslashreplace").rstrip("\r\n"))
