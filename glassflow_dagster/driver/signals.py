"""Handles the signals that ask a driver to stop: SIGTERM and Ctrl-C.

While the driver waits for servers, a signal ends the wait at once. Otherwise it is only remembered: while processes are
started or ended, and as soon as a batch may run, when the driver ends between two batches. A second signal ends the
process immediately: the checkpoint survives that as it survives a crash.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

# The exit code that shells report for a process that Ctrl-C has ended.
_INTERRUPTED = 130


class Stopped(Exception):
    """A signal asked the driver to stop before its query ran."""


class StopRequest:
    """Remembers whether a signal has asked the driver to stop (`asked`)."""

    def __init__(self) -> None:
        self.asked = False
        self._is_waiting = False

    @contextmanager
    def ending_waits(self) -> Iterator[None]:
        """For a block that waits for servers: raise `Stopped` in it at a signal, or for one that there was before."""
        self._is_waiting = True
        try:
            if self.asked:
                raise Stopped
            yield
        finally:
            self._is_waiting = False

    def ask(self, _number: int, _frame: object) -> None:
        """Handle a signal: exit on the second one; raise `Stopped` on the first in a block of `ending_waits`."""
        if self.asked:
            os._exit(_INTERRUPTED)
        self.asked = True
        if self._is_waiting:
            raise Stopped


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Handle SIGTERM and SIGINT while the block runs; restore the handlers from before at its end."""
    request = StopRequest()
    before = {number: signal.signal(number, request.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
