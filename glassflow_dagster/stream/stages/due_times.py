"""When a join on the processing clock can have something to decide while its topics are silent.

A left event that waits is decided one window after the batch that read it. So nothing is due but one window after a
batch that read events: an idle join needs no batch before that.
"""

from collections.abc import Iterable
from dataclasses import dataclass

# Times of batches that are no more than this apart are one span: a join that reads all the time has one, not thousands.
_GAP_SECONDS = 10.0


@dataclass
class _Span:
    """The times of the first and the last of several batches that followed each other."""

    first: float
    last: float


class DueTimes:
    """The times at which left events that wait may be decided. All times are seconds since 1970.

    window: how long a left event waits for a match, seconds.
    arrivals: when earlier batches read events, in any order.
    """

    def __init__(self, window: float, arrivals: Iterable[float] = ()) -> None:
        self._window = window
        self._spans: list[_Span] = []
        # When the last batch ended: the next one begins after it.
        self._ended = 0.0
        for arrival in sorted(arrivals):
            self._add(arrival)

    def after_batch(self, now: float, *, has_read: bool) -> None:
        """Note that a batch has ended. has_read: whether it has read events."""
        # This batch began after the one before it had ended, so it has decided what was due by then.
        self._spans = [span for span in self._spans if span.last + self._window >= self._ended]
        self._ended = now
        if has_read:
            self._add(now)

    def is_due(self, now: float) -> bool:
        """Return whether a left event may be due, if any waits.

        Where no batch is known from which one could wait, it may be at any time.
        """
        return not self._spans or now >= self._spans[0].first + self._window

    def _add(self, arrival: float) -> None:
        if self._spans and arrival - self._spans[-1].last <= _GAP_SECONDS:
            self._spans[-1].last = max(arrival, self._spans[-1].last)
        else:
            self._spans.append(_Span(arrival, arrival))
