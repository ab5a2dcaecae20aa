"""Handles the signals that ask a driver to stop: SIGTERM and Ctrl-C.

While the driver still waits for servers, a signal ends the wait at once. As soon as a batch may run, it is only
remembered, and the driver ends between two batches. A second signal ends the process immediately: the checkpoint
survives that as it survives a crash.
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
        self._is_deferred = False

    def defer_stops(self) -> None:
        """From now on only remember signals in `asked`, as a batch may run; raise `Stopped` if there was one before."""
        self._is_deferred = True
        if self.asked:
            raise Stopped

    def ask(self, _number: int, _frame: object) -> None:
        """Handle a signal: exit on the second one; raise `Stopped` on the first, unless stops are deferred."""
        if self.asked:
            os._exit(_INTERRUPTED)
        self.asked = True
        if not self._is_deferred:
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
