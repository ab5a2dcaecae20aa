"""The event clock of a join (the slower source's time, unless that source is idle), and the pacer of its batches."""

import pytest

from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.stream.stages.batch_pacer import BatchPacer, EventClock
from glassflow_dagster.stream.stages.clock_source_in_scala import ClockSource
from glassflow_dagster.stream.stages.columns import NO_EVENT_TIME

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


class WatermarksOnly(ClockSource):
    """A clock source without Spark, which keeps the watermarks that it is moved to, milliseconds since 1970."""

    def __init__(self) -> None:
        self.watermarks: list[int] = []

    def move_to(self, milliseconds: int) -> None:
        self.watermarks.append(milliseconds)

    def trigger_every(self, milliseconds: int) -> None:
        """Do nothing: only the processing clock triggers batches by time."""


@pytest.mark.parametrize(("waiting", "watermarks"), [(3, [390_000]), (0, [])])
def test_a_join_that_continues_advances_the_watermark_at_once_where_left_events_wait(
    waiting: int, watermarks: list[int]
) -> None:
    sides = {
        f"{side}_source": {"source_id": side, "key": "id", "time_window": "1h", "event_time": "at"}
        for side in ("left", "right")
    }
    fields = [{"source_id": "left", "name": "id"}]
    join = JoinConfig.model_validate(
        {"enabled": True, "clock": "event", "allowed_lateness": "10s", "output_fields": fields, **sides}
    )
    clock_source = WatermarksOnly()
    BatchPacer(join, clock_source, waiting, max_event_times(1000, 400))
    assert clock_source.watermarks == watermarks
