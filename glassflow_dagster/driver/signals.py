"""How a driver is told to stop: SIGTERM and Ctrl-C.

While nothing is at stake (servers are waited for) they end the wait at once; as soon as a batch may run they are only
remembered, and the driver ends between two batches. A second Ctrl-C ends the process whatever it does: the checkpoint
is made for that, too.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

# What shells give for a process that Ctrl-C ended.
_INTERRUPTED = 130


class Stopped(Exception):
    """The driver was told to stop before its query ran."""


class StopRequest:
    """Whether someone asked the driver to stop."""

    def __init__(self) -> None:
        self.asked = False
        self._patient = False

    def be_patient(self) -> None:
        """Only remember requests from now on; raises `Stopped` when there was one."""
        self._patient = True
        if self.asked:
            raise Stopped

    def ask(self, _number: int, _frame: object) -> None:
        """Handle a signal."""
        if self.asked:
            os._exit(_INTERRUPTED)
        self.asked = True
        if not self._patient:
            raise Stopped


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Handle SIGTERM and SIGINT for as long as the block runs."""
    request = StopRequest()
    before = {number: signal.signal(number, request.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
