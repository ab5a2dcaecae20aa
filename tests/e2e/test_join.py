"""Joins end to end: the table equals the rows computed from the topics, despite kills, idle sources and outages.

An artificial join, and the two of the repository. `make test` runs two combinations, `make test-long` the others.
"""

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.stream.stages.clock_source_in_scala import ClockSource
from tests.e2e.joins import LEFT, RIGHT, SECOND, Event, Expected, JoinPipeline, TwoTopics, recompute
from tests.e2e.shipped import FlightsWithWeather, OrdersWithUsers
from tests.e2e.support import kill, start, status, stop
from tests.e2e.test_dead_letters import verified
from tests.servers.stack import Stack
from tests.support.variants import some_of
from tests.support.waiting import wait_until

# Half of the combinations have a kill, spread so that each value of a parameter occurs with and without one.
ALL = [
    (pipeline, clock, match, kind, ((clock == "event") + (match == "all") + (kind == "left")) % 2 == 1)
    for pipeline, clock, match, kind in itertools.product(
        (JoinPipeline, OrdersWithUsers, FlightsWithWeather),
        ("processing", "event"),
        ("latest", "all"),
        ("inner", "left"),
    )
]
# One combination of each clock, one of them with a kill.
USUAL = [
    (OrdersWithUsers, "processing", "latest", "left", True),
    (JoinPipeline, "event", "all", "inner", False),
]
CASES = some_of([*USUAL, *(case for case in ALL if case not in USUAL)], len(USUAL))
SEEDS = 20
TOTALS = ("read", "written", "duplicates", "filtered", "late", "dead_letters", "accepted", "matched", "unmatched",
          "waiting", "null_keys", "joined")  # fmt: skip
FAR_FUTURE = 4_070_908_800  # 2099
HOUR = 3600


def set_up(pipeline: TwoTopics) -> None:
    pipeline.client().command(f"CREATE DATABASE IF NOT EXISTS {pipeline.name}")
    pipeline.write().create_topic()


class KilledDriver:
    """A background driver that is killed and restarted once, during a batch after its first."""

    def __init__(self, pipeline: TwoTopics) -> None:
        self._pipeline, self._read, self._deaths = pipeline, 0, 0
        start(pipeline)

    def send_and_wait(self, events: Sequence[tuple[str, Any]], name: str, count: int) -> None:
        """Send events, and wait until a count in the ledger has a value."""
        self._pipeline.send_both(events)
        if self._read and not self._deaths:
            self._deaths = 1
            wait_until(lambda: records_begun(self._pipeline) > self._read, "a batch with new records begins")
            kill(self._pipeline)
            start(self._pipeline)
        wait_until(lambda: self._pipeline.join_ledger()[name] == count, f"{name} is {count}")
        self._read = self._pipeline.join_ledger()["read"]

    def stop(self) -> None:
        stop(self._pipeline)


class CatchUpRuns:
    """Runs in this process, each until all is read."""

    def __init__(self, pipeline: TwoTopics) -> None:
        self._pipeline = pipeline

    def send_and_wait(self, events: Sequence[tuple[str, Any]], name: str, count: int) -> None:
        """Send events, and run until a count in the ledger has a value."""
        self._pipeline.send_both(events)
        self._pipeline.catch_up()
        wait_until(lambda: self._pipeline.join_ledger()[name] == count or self._again(), f"{name} is {count}")

    def stop(self) -> None:
        """Do nothing: no driver runs between two catch-ups."""

    def _again(self) -> bool:
        self._pipeline.catch_up()
        return False


def records_begun(pipeline: TwoTopics) -> int:
    """Return the number of records in all batches that have begun, complete or not."""
    offsets = (pipeline.state / pipeline.name / "checkpoint" / "offsets").iterdir()
    newest = max((file for file in offsets if file.name.isdigit()), key=lambda file: int(file.name))
    ends = json.loads(newest.read_text().splitlines()[2])  # version, metadata, one line per source: Kafka first
    return sum(sum(ends.get(pipeline.topic(side), {}).values()) for side in (LEFT, RIGHT))


def event_pair(pipeline: TwoTopics, name: str, key: str, at: int) -> list[tuple[str, Event]]:
    """Return an event of each source; no right event has the left event's key."""
    return [
        (LEFT, pipeline.event(LEFT, f"{name} left", f"{name} {key}", at)),
        (RIGHT, pipeline.event(RIGHT, f"{name} right", key, at)),
    ]


@pytest.mark.servers
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize(("kind_of_pipeline", "clock", "match", "kind", "killed"), CASES)
def test_the_rows_are_those_that_the_topics_make(
    stack: Stack,
    tmp_path: Path,
    kind_of_pipeline: type[TwoTopics],
    clock: str,
    match: str,
    kind: str,
    killed: bool,
) -> None:
    pipeline = kind_of_pipeline(
        tmp_path, stack.kafka, stack.clickhouse_port, match=match, kind=kind, event_clock=clock == "event"
    )
    set_up(pipeline)
    events = [event for seed in range(SEEDS) for event in pipeline.seeded(seed, 20, 20)]
    thirds = [events[i::3] for i in range(3)]
    thirds[1] += [(LEFT, b"{not json"), *event_pair(pipeline, "future", "0 of 0", FAR_FUTURE)]
    last = pipeline.begin + 3 * pipeline.lateness
    late = event_pair(pipeline, "late", "0 of 0", pipeline.begin)
    driver = KilledDriver(pipeline) if killed else CatchUpRuns(pipeline)
    try:
        sent = 0
        for third in thirds:
            sent += len(third)
            driver.send_and_wait(third, "read", sent)
        if clock == "event":
            # The clock passes all left events but the last one and the one in the far future.
            driver.send_and_wait(event_pair(pipeline, "last", "-", last), "waiting", 2)
            driver.send_and_wait(late, "late", 2)
        else:
            driver.send_and_wait([], "waiting", 0)  # waiting left events are decided without new events
    finally:
        driver.stop()
    came_late = [pipeline.identity(side, event) for side, event in late]
    expected = recompute(pipeline, came_late, (last - pipeline.lateness) * SECOND)
    assert pipeline.rows() == expected.rows
    assert pipeline.join_ledger() == expected.counts
    assert min(expected.counts[name] for name in ("matched", "unmatched", "duplicates", "dead_letters")) > 0
    report = verified(pipeline)
    assert (report["counts"]["passed"], report["unmatched"]["passed"]) == (True, True)
    beat = status(pipeline)
    assert {name: beat["totals"][name] for name in TOTALS} == {name: expected.counts[name] for name in TOTALS}
    assert beat["lags"] == {pipeline.topic(LEFT): 0, pipeline.topic(RIGHT): 0}
    assert beat["state_bytes"] > 0


@pytest.mark.long
@pytest.mark.servers
@pytest.mark.usefixtures("shared_session")
def test_a_restart_decides_the_left_events_of_the_last_batch_though_no_record_arrives(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = set_up_small_lateness(stack, tmp_path, "latest")
    events = [*hourly(pipeline, LEFT, 0, 100), *hourly(pipeline, RIGHT, 0, 100), *final_events(pipeline)]
    pipeline.send_both(events)
    with monkeypatch.context() as patched:
        # As if the driver's host were lost between the batch that reads the newest events and the one behind it.
        patched.setattr(ClockSource, "move_to", lambda *_: None)
        assert pipeline.catch_up()["read"] == len(events)
    assert pipeline.rows().total() == 0
    assert pipeline.join_ledger()["waiting"] == 101

    pipeline.catch_up()

    expected = recompute(pipeline, complete=(pipeline.begin + 4 * HOUR - pipeline.lateness) * SECOND)
    assert pipeline.rows() == expected.rows
    assert pipeline.join_ledger() == expected.counts
    assert pipeline.join_ledger()["waiting"] == 1


def hourly(pipeline: TwoTopics, side: str, number: int, count: int, shape: float = 1) -> list[tuple[str, Event]]:
    """Return the events of one source in hour `number`, out of order by at most a minute.

    shape: above 1 most events are at the beginning of the hour, below 1 at the end.
    """
    draw = random.Random(f"{side} {number}")
    begin = pipeline.begin + number * HOUR
    times = sorted(
        (begin + int(HOUR * draw.random() ** shape) for _ in range(count)), key=lambda at: at + draw.randrange(60)
    )
    keys = 60 if side == LEFT else 50
    return [
        (side, pipeline.event(side, f"{side} {number}-{index}", str(draw.randrange(keys)), at))
        for index, at in enumerate(times)
    ]


def set_up_small_lateness(stack: Stack, folder: Path, match: str) -> JoinPipeline:
    """Return a join on the event clock with an allowed lateness of two minutes and 500 records per batch."""
    pipeline = JoinPipeline(
        folder, stack.kafka, stack.clickhouse_port, match=match, kind="left", event_clock=True,
        left_window=600, right_window=1200, lateness=120,
    )  # fmt: skip
    # A partitioned table takes 50 blocks per batch, here of 10 rows each.
    by_day = {"order_by": "tuple()", "partition_by": "intDiv(at, 86400)"}
    pipeline.sink = {"max_batch_size": 10, "create_table": by_day}
    set_up(pipeline)
    return pipeline


def final_events(pipeline: TwoTopics) -> list[tuple[str, Event]]:
    """Return events that move the clock past the first two hours."""
    return event_pair(pipeline, "last", "-", pipeline.begin + 4 * HOUR)


def without_late_events(pipeline: TwoTopics) -> Expected:
    """Return the rows and counts of the join if none of its events is late: some of them match, and fewer do not."""
    expected = recompute(pipeline, complete=(pipeline.begin + 4 * HOUR - pipeline.lateness) * SECOND)
    assert expected.counts["matched"] > expected.counts["unmatched"] > 0
    return expected


@pytest.mark.long
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize("match", ["latest", "all"])
def test_a_source_an_hour_behind_the_other_is_joined_correctly(stack: Stack, tmp_path: Path, match: str) -> None:
    pipeline = set_up_small_lateness(stack, tmp_path, match)
    driver = CatchUpRuns(pipeline)
    driver.send_and_wait([*hourly(pipeline, LEFT, 0, 200), *hourly(pipeline, RIGHT, 0, 200)], "read", 400)
    driver.send_and_wait(hourly(pipeline, LEFT, 1, 600), "read", 1000)
    rights = hourly(pipeline, RIGHT, 1, 600)
    for part in range(3):
        driver.send_and_wait(rights[part * 200 : (part + 1) * 200], "read", 1200 + part * 200)
    driver.send_and_wait(final_events(pipeline), "waiting", 1)
    expected = without_late_events(pipeline)
    assert (pipeline.rows(), pipeline.join_ledger()) == (expected.rows, expected.counts)


@pytest.mark.long
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize(("left_shape", "right_shape"), [(3, 1 / 3), (1 / 3, 3)])
def test_backlogs_that_are_read_in_small_batches_join_right_though_one_side_gets_ahead(
    stack: Stack, tmp_path: Path, left_shape: float, right_shape: float
) -> None:
    pipeline = set_up_small_lateness(stack, tmp_path, "latest")
    lefts, rights = hourly(pipeline, LEFT, 1, 1500, left_shape), hourly(pipeline, RIGHT, 1, 2500, right_shape)
    driver = KilledDriver(pipeline)
    try:
        driver.send_and_wait([*hourly(pipeline, LEFT, 0, 200), *hourly(pipeline, RIGHT, 0, 200)], "read", 400)
        stop(pipeline)
        pipeline.send_both([*lefts, *rights])
        start(pipeline)
        driver.send_and_wait([], "read", 4400)
        driver.send_and_wait(final_events(pipeline), "waiting", 1)
    finally:
        driver.stop()
    expected = without_late_events(pipeline)
    assert (pipeline.rows(), pipeline.join_ledger()) == (expected.rows, expected.counts)
