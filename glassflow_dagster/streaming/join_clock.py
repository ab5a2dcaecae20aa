"""How far the two sources of a join have come in event time, and when batches must go on without records.

The event clock is the time before which nothing more is expected: the newest event of the slower source, less the
allowed lateness. A source that has been silent for the idle timeout does not count; when both have, the clock goes on
as the time goes by. What the clock said stands in the log of each batch (state/Ticks.scala): a replay hears the same.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from glassflow_dagster.config.durations import microseconds
from glassflow_dagster.config.join import JoinConfig
from glassflow_dagster.streaming.counts import NO_LEAD, Counts
from glassflow_dagster.streaming.ticks import Ticks

# How soon after its window an event that waits is decided while both topics are silent; a batch for it alone costs
# some 0.2 seconds.
TICK_MS = 2000


@dataclass
class EventClock:
    """The clock of one query. Leads are microseconds since 1970, `now` seconds of a clock that never goes back.

    Which source of the two, left or right, an index says.
    """

    lateness_us: int
    idle_seconds: float
    started: float
    leads: list[int] = field(default_factory=lambda: [NO_LEAD, NO_LEAD])
    active: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take both sources for active: they have been given no time yet."""
        self.active = [self.started, self.started]

    def saw(self, leads: Sequence[int], now: float) -> None:
        """Take note of how far the events of a batch have come; `NO_LEAD` for a source without one."""
        for side, lead in enumerate(leads):
            if lead != NO_LEAD:
                self.active[side] = now
                self.leads[side] = max(self.leads[side], lead)

    def milliseconds(self, now: float) -> int:
        """Say how far the clock is; 0 while that is not known."""
        newest = max(self.leads)
        idle = [now - active >= self.idle_seconds for active in self.active]
        if newest == NO_LEAD or any(lead == NO_LEAD and not idle[side] for side, lead in enumerate(self.leads)):
            return 0
        if all(idle):
            reached = newest + int((now - max(self.active)) * 1_000_000)
        else:
            reached = min(lead for side, lead in enumerate(self.leads) if not idle[side])
        return max(0, (reached - self.lateness_us) // 1000)


class Pace:
    """Sees to it that the left events of a query that wait are decided in time, whether records come or not."""

    def __init__(self, join: JoinConfig, ticks: Ticks, waiting: int, leads: Sequence[int]) -> None:
        """Go on where an earlier run ended: how many events waited, and how far the sources had come."""
        self._ticks, self._waiting = ticks, waiting
        self._clock: EventClock | None = None
        if join.clock == "event":
            idle = join.idle_timeout.total_seconds()
            self._clock = EventClock(microseconds(join.lateness), idle, time.monotonic(), list(leads))
        self._moved = time.monotonic()
        self._set_ticks()

    @property
    def leads(self) -> tuple[int, int]:
        """How far left and right have come, microseconds since 1970, or `NO_LEAD`."""
        left, right = self._clock.leads if self._clock else (NO_LEAD, NO_LEAD)
        return left, right

    def after_batch(self, counts: Counts) -> None:
        """Take note of what a batch did."""
        self._waiting += counts.waiting
        self._set_ticks()
        leads = (counts.left_lead, counts.right_lead)
        if self._clock and leads != (NO_LEAD, NO_LEAD):
            self._clock.saw(leads, time.monotonic())
            self._move()

    def go_on(self) -> None:
        """Move the event clock on for those that wait; to be called every second or so."""
        if self._clock and self._waiting and time.monotonic() - self._moved >= TICK_MS / 1000:
            self._move()

    def _move(self) -> None:
        assert self._clock  # noqa: S101 - there is one on the event clock
        self._moved = time.monotonic()
        self._ticks.move_to(self._clock.milliseconds(self._moved))

    def _set_ticks(self) -> None:
        # On the event clock a batch has something to do only when the clock has moved, and then comes by itself.
        self._ticks.tick_every(TICK_MS if self._waiting and not self._clock else 0)
