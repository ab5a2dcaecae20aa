"""How far the two sources of a join have come in event time, and when batches must go on without records.

The event clock is the time before which nothing more is expected: the newest event of the slower source, less the
allowed lateness. A source that has been silent for the idle timeout does not count; when both have, the clock goes on
as the time goes by. What the clock said stands in the log of each batch (scala/spark/ClockSource.scala): a replay hears
the same.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from glassflow_dagster.config.model.durations import microseconds
from glassflow_dagster.config.model.join import JoinConfig
from glassflow_dagster.streaming.stages.clock_source import ClockSource
from glassflow_dagster.streaming.stages.record_counter import NO_EVENT_TIME, Counts

# How soon after its window an event that waits is decided while both topics are silent; a batch for it alone costs
# some 0.2 seconds.
TICK_MS = 2000


@dataclass
class EventClock:
    """The clock of one query.

    max_event_times: microseconds since 1970. now: seconds of a clock that never goes back.

    Which source of the two, left or right, an index says.
    """

    lateness_us: int
    idle_seconds: float
    started: float
    max_event_times: list[int] = field(default_factory=lambda: [NO_EVENT_TIME, NO_EVENT_TIME])
    active: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take both sources for active: they have been given no time yet."""
        self.active = [self.started, self.started]

    def saw(self, max_event_times: Sequence[int], now: float) -> None:
        """Take note of how far the events of a batch have come; `NO_EVENT_TIME` for a source without one."""
        for side, max_event_time in enumerate(max_event_times):
            if max_event_time != NO_EVENT_TIME:
                self.active[side] = now
                self.max_event_times[side] = max(self.max_event_times[side], max_event_time)

    def milliseconds(self, now: float) -> int:
        """Say how far the clock is; 0 while that is not known."""
        newest = max(self.max_event_times)
        idle = [now - active >= self.idle_seconds for active in self.active]
        if newest == NO_EVENT_TIME or any(
            max_event_time == NO_EVENT_TIME and not idle[side]
            for side, max_event_time in enumerate(self.max_event_times)
        ):
            return 0
        if all(idle):
            reached = newest + int((now - max(self.active)) * 1_000_000)
        else:
            reached = min(max_event_time for side, max_event_time in enumerate(self.max_event_times) if not idle[side])
        return max(0, (reached - self.lateness_us) // 1000)


class BatchPacer:
    """Sees to it that the left events of a query that wait are decided in time, whether records come or not."""

    def __init__(self, join: JoinConfig, ticks: ClockSource, waiting: int, max_event_times: Sequence[int]) -> None:
        """Go on where an earlier run ended: how many events waited, and how far the sources had come."""
        self._ticks, self._waiting = ticks, waiting
        self._clock: EventClock | None = None
        if join.clock == "event":
            idle = join.idle_timeout.total_seconds()
            self._clock = EventClock(microseconds(join.lateness), idle, time.monotonic(), list(max_event_times))
        self._moved = time.monotonic()
        self._set_ticks()

    @property
    def max_event_times(self) -> tuple[int, int]:
        """How far left and right have come, microseconds since 1970, or `NO_EVENT_TIME`."""
        left, right = self._clock.max_event_times if self._clock else (NO_EVENT_TIME, NO_EVENT_TIME)
        return left, right

    def after_batch(self, counts: Counts) -> None:
        """Take note of what a batch did."""
        self._waiting += counts.waiting
        self._set_ticks()
        max_event_times = (counts.left_max_event_time, counts.right_max_event_time)
        if self._clock and max_event_times != (NO_EVENT_TIME, NO_EVENT_TIME):
            self._clock.saw(max_event_times, time.monotonic())
            self._move()

    def go_on(self) -> None:
        """Move the event clock on for those that wait; to be called every second or so."""
        if self._clock and self._waiting and time.monotonic() - self._moved >= TICK_MS / 1000:
            self._move()

    def _move(self) -> None:
        assert self._clock
        self._moved = time.monotonic()
        self._ticks.move_to(self._clock.milliseconds(self._moved))

    def _set_ticks(self) -> None:
        # On the event clock a batch has something to do only when the clock has moved, and then comes by itself.
        self._ticks.tick_every(TICK_MS if self._waiting and not self._clock else 0)
