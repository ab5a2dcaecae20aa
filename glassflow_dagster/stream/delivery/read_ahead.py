"""Reads a value before it is needed, so that nobody waits for it, and again where it has become too old."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")

# A batch takes about as long, and during a batch the value may change, too: nothing depends on a younger one.
MAX_AGE_SECONDS = 0.25


class ReadAhead(Generic[T]):
    """A value that is read in the background when it will probably be needed soon. To be used by one thread."""

    def __init__(self, read: Callable[[], T], retried: Callable[[], T]) -> None:
        """Prepare to read.

        read: the value, once.
        retried: the same, repeated on errors that may pass.
        """
        self._read, self._retried = read, retried
        self._ahead: _Reading[T] | None = None

    def expect(self, interval_ms: int) -> None:
        """Begin to read, if the value is needed soon, after `interval_ms` as it was last time, and is too old then."""
        seconds = interval_ms / 1000
        if 0 < seconds < MAX_AGE_SECONDS and not (self._ahead and self._ahead.age() + seconds <= MAX_AGE_SECONDS):
            self._ahead = _Reading(self._read)

    def result(self) -> T:
        """Return the value of at most `MAX_AGE_SECONDS` ago; read it now where there is none, and raise its errors."""
        if self._ahead is not None:
            # In any case: two threads must not read at once.
            self._ahead.join()
            if self._ahead.values and self._ahead.age() <= MAX_AGE_SECONDS:
                return self._ahead.values[0]
        self._ahead = None
        return self._retried()


class _Reading(threading.Thread, Generic[T]):
    """One attempt to read a value. values: that value, or nothing after an error.

    A daemon: the process may end while a server does not answer.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self.values: list[T] = []
        self._read, self._begun = read, (time.monotonic(), time.time())
        self.start()

    def run(self) -> None:
        """Read the value. Who needs it reads again after an error, and gets it then."""
        with suppress(Exception):
            self.values.append(self._read())

    def age(self) -> float:
        """Return the seconds since the value was asked for, by the clock that says more.

        A wall clock that was set, or a machine that was suspended, makes a value old: it has the difference to the
        server's clock.
        """
        steady, wall = self._begun
        return max(time.monotonic() - steady, abs(time.time() - wall))
