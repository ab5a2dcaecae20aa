"""The event clock of a join (the slower source's time, unless that source is idle), and the pacer of its batches."""

import time
from typing import Any

import pytest

from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.stream.stages.batch_pacer import TRIGGER_MS, BatchPacer, EventClock
from glassflow_dagster.stream.stages.clock_source_in_scala import ClockSource
from glassflow_dagster.stream.stages.columns import NO_EVENT_TIME
from glassflow_dagster.stream.stages.record_counter import BatchOutcomes

SECOND = 1_000_000


def clock(lateness: int = 10, idle: float = 60.0) -> EventClock:
    return EventClock(lateness * SECOND, idle, started=0.0)


def max_event_times(left: int | None, right: int | None) -> tuple[int, ...]:
    return tuple(
        NO_EVENT_TIME if max_event_time is None else max_event_time * SECOND for max_event_time in (left, right)
    )


def test_the_slower_source_counts_less_the_lateness() -> None:
    found = clock()
    found.observe(max_event_times(1000, 400), 1.0)
    assert found.watermark_ms(2.0) == 390_000
    found.observe(max_event_times(None, 700), 3.0)
    found.observe(max_event_times(900, 650), 4.0)  # older events do not move the clock back
    assert found.watermark_ms(5.0) == 690_000


def test_a_source_that_has_said_nothing_yet_holds_the_clock_until_it_is_idle() -> None:
    found = clock()
    found.observe(max_event_times(1000, None), 50.0)
    assert found.watermark_ms(59.0) == 0
    assert found.watermark_ms(60.0) == 990_000


def test_a_silent_source_does_not_count_and_does_again_when_it_speaks() -> None:
    found = clock()
    found.observe(max_event_times(1000, 400), 0.0)
    found.observe(max_event_times(1100, None), 59.0)
    assert found.watermark_ms(59.0) == 390_000
    assert found.watermark_ms(60.0) == 1_090_000
    found.observe(max_event_times(None, 500), 61.0)
    assert found.watermark_ms(61.0) == 490_000


def test_when_both_are_silent_the_clock_goes_on_with_the_time() -> None:
    found = clock()
    found.observe(max_event_times(1000, 400), 0.0)
    found.observe(max_event_times(1010, None), 20.0)
    assert found.watermark_ms(79.0) == 1_000_000  # right is idle, left is not
    assert found.watermark_ms(80.0) == (1010 + 60 - 10) * 1000
    assert found.watermark_ms(95.5) == (1010 + 75.5 - 10) * 1000


def test_before_any_event_there_is_no_clock() -> None:
    assert clock().watermark_ms(1e9) == 0


@pytest.mark.parametrize("newest", [0, 5, 10])
def test_the_clock_is_never_before_its_beginning(newest: int) -> None:
    found = clock()
    found.observe(max_event_times(newest, newest), 0.0)
    assert found.watermark_ms(1.0) == 0


class ClockOnly(ClockSource):
    """A clock source without Spark: the watermarks that it is moved to, milliseconds since 1970, and its interval."""

    def __init__(self) -> None:
        self.watermarks: list[int] = []
        self.interval_ms = 0

    def move_to(self, milliseconds: int) -> None:
        self.watermarks.append(milliseconds)

    def trigger_every(self, milliseconds: int) -> None:
        self.interval_ms = milliseconds


def join_config(**settings: Any) -> JoinConfig:
    sides = {
        f"{side}_source": {"source_id": side, "key": "id", "time_window": "1h", **settings.pop(side, {})}
        for side in ("left", "right")
    }
    fields = [{"source_id": "left", "name": "id"}]
    return JoinConfig.model_validate({"enabled": True, "output_fields": fields, **sides, **settings})


def test_a_join_on_the_processing_clock_triggers_batches_only_while_an_event_may_be_due() -> None:
    clock_source = ClockOnly()
    pacer = BatchPacer(join_config(), clock_source, 1, max_event_times(None, None), arrivals=[time.time()])
    # A first batch decides what was due when the last driver ended.
    assert clock_source.interval_ms == TRIGGER_MS
    pacer.after_batch(BatchOutcomes(read=3, waiting=2))
    pacer.advance_clock()
    assert clock_source.interval_ms == 0
    pacer.after_batch(BatchOutcomes(waiting=-3))
    assert clock_source.interval_ms == 0


def test_a_join_whose_events_wait_for_an_unknown_time_triggers_batches_until_none_waits() -> None:
    clock_source = ClockOnly()
    pacer = BatchPacer(join_config(), clock_source, 1, max_event_times(None, None), arrivals=[])
    pacer.after_batch(BatchOutcomes())
    assert clock_source.interval_ms == TRIGGER_MS
    pacer.after_batch(BatchOutcomes(waiting=-1))
    assert clock_source.interval_ms == 0


@pytest.mark.parametrize(("waiting", "watermarks"), [(3, [390_000]), (0, [])])
def test_a_join_that_continues_advances_the_watermark_at_once_where_left_events_wait(
    waiting: int, watermarks: list[int]
) -> None:
    by_time = {"event_time": "at"}
    join = join_config(clock="event", allowed_lateness="10s", left=by_time, right=by_time)
    clock_source = ClockOnly()
    BatchPacer(join, clock_source, waiting, max_event_times(1000, 400), arrivals=[])
    assert clock_source.watermarks == watermarks
