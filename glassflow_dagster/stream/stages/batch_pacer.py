"""Computes the watermark of a join, and triggers batches for left events that wait while no records arrive.

The watermark is the newest event time of the slower source, less the allowed lateness: nothing before it is expected
any more. A source without events for the idle timeout is ignored; when both are idle, the watermark advances with the
machine's time. The watermark is in the offset log of each batch (scala/spark/ClockSource.scala), so that a replay has
the same one.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from glassflow_dagster.definition.model.durations import microseconds
from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.stream.stages.clock_source_in_scala import ClockSource
from glassflow_dagster.stream.stages.columns import NO_EVENT_TIME
from glassflow_dagster.stream.stages.due_times import DueTimes
from glassflow_dagster.stream.stages.record_counter import BatchOutcomes

# While both topics are silent, a left event that waits is decided at most this long after the end of its window (and a
# second, in which the driver looks whether one is due). A batch for it alone takes some 0.2 seconds.
TRIGGER_MS = 2000


@dataclass
class EventClock:
    """The event clock of one join: keeps the newest event time of each source, and computes the watermark from them.

    lateness_us: the allowed lateness, microseconds.
    idle_seconds: the idle timeout.
    started: when the query started, monotonic seconds, as are all `now` here.
    max_event_times: the newest event time of the left and the right source, microseconds since 1970, or
        `NO_EVENT_TIME`.
    active: when each of them last had an event, monotonic seconds.
    """

    lateness_us: int
    idle_seconds: float
    started: float
    max_event_times: list[int] = field(default_factory=lambda: [NO_EVENT_TIME, NO_EVENT_TIME])
    active: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Treat both sources as active at the start, so that none is idle before its timeout has passed."""
        self.active = [self.started, self.started]

    def observe(self, max_event_times: Sequence[int], now: float) -> None:
        """Update the clock by a batch. max_event_times: of left and right; `NO_EVENT_TIME` for one without an event."""
        for side, max_event_time in enumerate(max_event_times):
            if max_event_time != NO_EVENT_TIME:
                self.active[side] = now
                self.max_event_times[side] = max(self.max_event_times[side], max_event_time)

    def watermark_ms(self, now: float) -> int:
        """Return the watermark at `now`, milliseconds since 1970; 0 while it is not known.

        It is the older one of both sources' newest event times, less the allowed lateness. An idle source is ignored.
        When both are idle, it is the newest event time of both plus the time since the last event, less the lateness.
        It is not known while a source that is not idle has had no event, or when none has had any.
        """
        newest = max(self.max_event_times)
        idle = [now - active >= self.idle_seconds for active in self.active]
        active_times = [time_us for time_us, is_idle in zip(self.max_event_times, idle, strict=True) if not is_idle]
        if newest == NO_EVENT_TIME or NO_EVENT_TIME in active_times:
            return 0
        since_last_event_us = int((now - max(self.active)) * 1_000_000)
        event_time_us = min(active_times) if active_times else newest + since_last_event_us
        return max(0, (event_time_us - self.lateness_us) // 1000)


class BatchPacer:
    """Keeps a join going while left events wait: triggers batches without records, and advances the watermark."""

    def __init__(
        self,
        join: JoinConfig,
        clock_source: ClockSource,
        waiting: int,
        max_event_times: Sequence[int],
        arrivals: Iterable[float],
    ) -> None:
        """Continue where the last batch ended.

        The watermark is advanced at once, as the batch that the last one would have triggered may be missing; on the
        processing clock a first batch is triggered.

        clock_source: the query's.
        waiting: the number of left events that wait.
        max_event_times: the newest event time of left and right, microseconds since 1970, or `NO_EVENT_TIME`.
        arrivals: when earlier batches have read events that may wait, seconds since 1970.
        """
        self._clock_source, self._waiting = clock_source, waiting
        self._due_times = DueTimes(join.left_source.time_window.total_seconds(), arrivals)
        self._clock: EventClock | None = None
        if join.clock == "event":
            idle = join.idle_timeout.total_seconds()
            self._clock = EventClock(microseconds(join.lateness), idle, time.monotonic(), list(max_event_times))
        # When the watermark was last advanced, monotonic seconds.
        self._advanced = time.monotonic()
        self._has_begun = False
        self._set_interval()
        if self._clock and self._waiting:
            self._advance()

    @property
    def max_event_times(self) -> tuple[int, int]:
        """The newest event time of left and right, microseconds since 1970.

        `NO_EVENT_TIME` for a source without an event, and always on the processing clock.
        """
        left, right = self._clock.max_event_times if self._clock else (NO_EVENT_TIME, NO_EVENT_TIME)
        return left, right

    def after_batch(self, outcomes: BatchOutcomes) -> None:
        """Update the number of waiting left events and the event clock by a batch's outcomes.

        outcomes: `waiting` is the change of that number. A batch without events does not advance the watermark.
        """
        self._waiting += outcomes.waiting
        self._due_times.after_batch(time.time(), has_read=outcomes.read > 0)
        self._has_begun = True
        self._set_interval()
        max_event_times = (outcomes.left_max_event_time, outcomes.right_max_event_time)
        if self._clock and max_event_times != (NO_EVENT_TIME, NO_EVENT_TIME):
            self._clock.observe(max_event_times, time.monotonic())
            self._advance()

    def advance_clock(self) -> None:
        """Let time pass while left events wait for a match and the topics are silent.

        On the event clock advance the watermark every `TRIGGER_MS`: an event without a match is decided only once it
        has passed. On the processing clock trigger batches while an event may be due. To be called about every second.
        """
        if self._clock and self._waiting and time.monotonic() - self._advanced >= TRIGGER_MS / 1000:
            self._advance()
        self._set_interval()

    def _advance(self) -> None:
        """Write the current watermark to the clock source, whose next batch brings it into Spark."""
        assert self._clock
        self._advanced = time.monotonic()
        self._clock_source.move_to(self._clock.watermark_ms(self._advanced))

    def _set_interval(self) -> None:
        """Trigger batches without records while left events that wait on the processing clock may be due.

        The first batch is triggered in any case: a query that ends when all is read has no later one.
        """
        # On the event clock a batch has something to decide only after the watermark has moved, which triggers one.
        decides = self._waiting and not self._clock and (not self._has_begun or self._due_times.is_due(time.time()))
        self._clock_source.trigger_every(TRIGGER_MS if decides else 0)
