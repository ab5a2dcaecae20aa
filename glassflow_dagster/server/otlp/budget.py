"""Limits the memory of requests: what does not fit is refused, and the client sends it again later."""

from collections.abc import Iterator
from contextlib import contextmanager

from glassflow_dagster.server.otlp.refusals import Reason, Refusal

# Bytes that a request or message needs besides its content, so that many small ones are limited, too.
OVERHEAD = 1024


class Budget:
    """A number of bytes that are in use, and its limit. Only for the thread of the event loop."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self.what = what
        self.used = 0

    def take(self, size: int) -> None:
        """Use `size` bytes; raises `Refusal` where that exceeds the limit, except if nothing else is in use."""
        if self.used and self.used + size > self._limit:
            raise Refusal(Reason.FULL, f"{self.what} have reached {self._limit:,} bytes; send it again later")
        self.used += size

    def give_back(self, size: int) -> None:
        """End the use of `size` bytes."""
        self.used -= size

    @contextmanager
    def hold(self) -> Iterator["Held"]:
        """Yield a part that grows, and is given back at the end of the block."""
        held = Held(self)
        try:
            yield held
        finally:
            self.give_back(held.size)


class Held:
    """A part of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size = 0

    def grow(self, size: int) -> None:
        """Use `size` more bytes; raises `Refusal` where that exceeds the limit."""
        self._budget.take(size)
        self.size += size
