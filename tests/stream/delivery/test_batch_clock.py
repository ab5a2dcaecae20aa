"""A batch's time is accepted while wall clock, steady clock and ClickHouse's clock agree."""

import pytest

from glassflow_dagster.definition.model.transforms import Dedup
from glassflow_dagster.stream.checkpoint.checkpoint import BatchPlan
from glassflow_dagster.stream.delivery.batch_clock import BatchClock, ClockMoved, Reading, tolerance_of
from tests.stores.clickhouse.definitions import sms_status

START = 1_790_000_000.0  # seconds since 1970
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
TOLERANCE = 6 * MINUTE


def plan(wall: float, lead: float | None) -> BatchPlan:
    return BatchPlan(
        batch_id=4, batch_time_ms=round(wall * 1000), offsets={}, definition="d", types={}, table="",
        dead_letters_expire_at=0, rows=1, bytes=1, server_lead_ms=None if lead is None else round(lead * 1000),
    )  # fmt: skip


class Driver:
    """A driver whose machine's clock and ClickHouse's clock are set by the test."""

    def __init__(self, last: BatchPlan | None = None, *, accepted: bool = False) -> None:
        self.messages: list[str] = []
        self.clock = BatchClock(TOLERANCE, last, accepted, self.messages.append)

    def batch(self, wall: float, steady: float, lead: float = 0.0, time_of_batch: float | None = None) -> None:
        """Check the time of a batch that begins at these clock values."""
        reading = Reading(START + wall, steady)
        of = START + wall if time_of_batch is None else START + time_of_batch
        self.clock.require_plausible(round(of * 1000), reading, round(lead * 1000))
        self.clock.follow(plan(of, lead), reading)

    def error_of(self, *moment: float, **more: float) -> str:
        with pytest.raises(ClockMoved) as refused:
            self.batch(*moment, **more)
        return str(refused.value)


def test_time_that_goes_by_is_believed_however_far_clickhouses_clock_is_off() -> None:
    driver = Driver(plan(START, lead=HOUR))
    driver.batch(30 * DAY, steady=5, lead=HOUR)
    for minute in (1, 3, 500):
        driver.batch(30 * DAY + minute * MINUTE, steady=5 + minute * MINUTE, lead=-HOUR)
    assert driver.messages == []


@pytest.mark.parametrize("wall", [DAY, -DAY, 7 * MINUTE + 1, -7 * MINUTE])
def test_a_clock_that_is_set_while_the_driver_runs_is_not_believed(wall: float) -> None:
    driver = Driver()
    driver.batch(0, steady=0)
    message = driver.error_of(wall, steady=1, lead=-wall)
    assert "batch 4 has the time 2026-09-21T14:13:20+00:00" in message
    assert "--accept-clock" in message
    # The rejected time was not taken over.
    driver.batch(2, steady=2)


def test_a_clock_that_is_set_a_little_is_believed() -> None:
    driver = Driver()
    driver.batch(0, steady=0)
    driver.batch(5 * MINUTE, steady=1)
    driver.batch(1, steady=2)
    assert driver.messages == []


def test_a_machine_that_was_suspended_is_detected_by_clickhouses_clock() -> None:
    driver = Driver()
    driver.batch(0, steady=0, lead=3)
    driver.batch(DAY, steady=1, lead=4)
    assert driver.messages == [
        "the clock advanced by 23:59:59 while this machine was suspended, as ClickHouse's clock did"
    ]


@pytest.mark.parametrize(("wall", "time"), [(DAY, "2026-09-22T14:13:20"), (-HOUR, "2026-09-21T13:13:20")])
def test_a_clock_that_was_set_between_two_drivers_is_detected_by_clickhouses_clock(wall: float, time: str) -> None:
    message = Driver(plan(START, lead=0)).error_of(wall, steady=0, lead=-wall)
    assert f"would have the time {time}+00:00, batch 4 has the time 2026-09-21T14:13:20+00:00" in message


def test_a_clock_that_is_behind_the_last_batch_is_not_believed_whatever_clickhouse_says() -> None:
    message = Driver(plan(START, lead=0)).error_of(-HOUR, steady=0, lead=0)
    assert "would have the time 2026-09-21T13:13:20+00:00, batch 4 has the time 2026-09-21T14:13:20+00:00" in message


def test_a_clock_that_jumps_there_and_back_is_not_believed() -> None:
    driver = Driver()
    driver.batch(0, steady=0)
    message = driver.error_of(1, steady=1, time_of_batch=DAY)
    assert "would have the time 2026-09-22T14:13:20+00:00, batch 4 has the time 2026-09-21T14:13:20+00:00" in message


def test_the_first_batch_is_compared_with_clickhouses_clock() -> None:
    assert "no batch has been written yet" in Driver().error_of(0, steady=0, lead=HOUR)
    Driver().batch(0, steady=0, lead=20 * MINUTE)


def test_a_plan_without_clickhouses_clock_is_compared_as_the_first_batch() -> None:
    message = Driver(plan(START, lead=None)).error_of(DAY, steady=0, lead=HOUR)
    assert "would have the time 2026-09-22T14:13:20+00:00, batch 4 has the time 2026-09-21T14:13:20+00:00" in message
    Driver(plan(START, lead=None)).batch(DAY, steady=0, lead=20 * MINUTE)


def test_a_clock_that_is_accepted_is_believed_once() -> None:
    driver = Driver(plan(START + DAY, lead=0), accepted=True)
    driver.batch(0, steady=0)
    driver.batch(1, steady=1)
    message = driver.error_of(DAY, steady=2, lead=-DAY)
    assert "would have the time 2026-09-22T14:13:20+00:00, batch 4 has the time 2026-09-21T14:13:21+00:00" in message


@pytest.mark.parametrize(("window", "tolerance"), [("1s", 10), ("10m", 60), ("1h", 360), ("7d", 25 * 60)])
def test_what_is_believed_goes_by_the_window(window: str, tolerance: float) -> None:
    config = sms_status().model_copy(update={"transforms": ()})
    assert tolerance_of(config) is None
    dedup = Dedup.model_validate({
        "type": "dedup", "source_id": config.source.source_id, "config": {"key": "sms_id", "time_window": window},
    })  # fmt: skip
    assert tolerance_of(config.model_copy(update={"transforms": (dedup,)})) == tolerance
