"""Joins end to end: the table is what the topics' contents make by definition, through kills, silence and outages.

A made-up join, and both that the repository has. `make test-joins` runs all of this, `make test` a draw.
"""

import itertools
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Stack
from tests.e2e.joins import LEFT, RIGHT, SECOND, Event, JoinPipeline, TwoTopics, recompute
from tests.e2e.shipped import FlightsWithWeather, OrdersWithUsers
from tests.e2e.support import kill, start, status, stop
from tests.e2e.test_dead_letters import verified
from tests.waiting import wait_until

# Half of them with a kill, in such a way that each half of a kind (either clock, say) has both.
ALL = [
    (pipeline, clock, match, kind, ((clock == "event") + (match == "all") + (kind == "left")) % 2 == 1)
    for pipeline, clock, match, kind in itertools.product(
        (JoinPipeline, OrdersWithUsers, FlightsWithWeather),
        ("processing", "event"),
        ("latest", "all"),
        ("inner", "left"),
    )
]
# Of each clock one, and one of them with a kill.
DRAWN = [
    (OrdersWithUsers, "processing", "latest", "left", True),
    (JoinPipeline, "event", "all", "inner", False),
]
RUNS_ALL = os.environ.get("GLASSFLOW_TEST_JOINS") == "all"
SEEDS = 20
TOTALS = ("read", "written", "duplicates", "filtered", "late", "dead_letters", "accepted", "matched", "unmatched",
          "waiting", "null_keys", "joined")  # fmt: skip
FAR_FUTURE = 4_070_908_800  # 2099
HOUR = 3600


def make(pipeline: TwoTopics) -> None:
    pipeline.client().command(f"CREATE DATABASE IF NOT EXISTS {pipeline.name}")
    pipeline.write().create_topic()


class Killed:
    """A driver in the background, which dies once in the middle of a batch, but not of its first, and comes back."""

    def __init__(self, pipeline: TwoTopics) -> None:
        self._pipeline, self._read, self._deaths = pipeline, 0, 0
        start(pipeline)

    def take(self, events: Sequence[tuple[str, Any]], name: str, count: int) -> None:
        """Send events, and wait until a figure of the ledger has come to a number."""
        self._pipeline.send_sides(events)
        if self._read and not self._deaths:
            self._deaths = 1
            wait_until(lambda: begun(self._pipeline) > self._read, "a batch with new records begins")
            kill(self._pipeline)
            start(self._pipeline)
        wait_until(lambda: self._pipeline.join_ledger()[name] == count, f"{name} is {count}")
        self._read = self._pipeline.join_ledger()["read"]

    def stop(self) -> None:
        stop(self._pipeline)


class CaughtUp:
    """Runs in this process, each until all is read."""

    def __init__(self, pipeline: TwoTopics) -> None:
        self._pipeline = pipeline

    def take(self, events: Sequence[tuple[str, Any]], name: str, count: int) -> None:
        """Send events, and run until a figure of the ledger has come to a number."""
        self._pipeline.send_sides(events)
        self._pipeline.catch_up()
        wait_until(lambda: self._pipeline.join_ledger()[name] == count or self._again(), f"{name} is {count}")

    def stop(self) -> None:
        """Nothing runs between two catch-ups."""

    def _again(self) -> bool:
        self._pipeline.catch_up()
        return False


def begun(pipeline: TwoTopics) -> int:
    """Count the records that are read by the batches that have begun, over or not."""
    offsets = (pipeline.state / pipeline.name / "checkpoint" / "offsets").iterdir()
    newest = max((file for file in offsets if file.name.isdigit()), key=lambda file: int(file.name))
    ends = json.loads(newest.read_text().splitlines()[2])  # version, metadata, then one line a source: Kafka's first
    return sum(sum(ends.get(pipeline.topic(side), {}).values()) for side in (LEFT, RIGHT))


def both(pipeline: TwoTopics, name: str, key: str, at: int) -> list[tuple[str, Event]]:
    """Give an event of either side; the left one's key is nobody's."""
    return [
        (LEFT, pipeline.event(LEFT, f"{name} left", f"{name} {key}", at)),
        (RIGHT, pipeline.event(RIGHT, f"{name} right", key, at)),
    ]


@pytest.mark.servers
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize(("kind_of_pipeline", "clock", "match", "kind", "killed"), ALL if RUNS_ALL else DRAWN)
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
    make(pipeline)
    events = [event for seed in range(SEEDS) for event in pipeline.seeded(seed, 20, 20)]
    thirds = [events[i::3] for i in range(3)]
    thirds[1] += [(LEFT, b"{not json"), *both(pipeline, "future", "0 of 0", FAR_FUTURE)]
    last = pipeline.begin + 3 * pipeline.lateness
    late = both(pipeline, "late", "0 of 0", pipeline.begin)
    driver = Killed(pipeline) if killed else CaughtUp(pipeline)
    try:
        sent = 0
        for third in thirds:
            sent += len(third)
            driver.take(third, "read", sent)
        if clock == "event":
            # The clock passes all but the last left event, and the one of the far future.
            driver.take(both(pipeline, "last", "-", last), "waiting", 2)
            driver.take(late, "late", 2)
        else:
            driver.take([], "waiting", 0)  # those that wait are decided in silence
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


def hourly(pipeline: TwoTopics, side: str, number: int, count: int, shape: float = 1) -> list[tuple[str, Event]]:
    """Make the events of one side in hour `number`, out of order by a minute at most.

    shape: above 1 most of them are of its beginning, below 1 of its end.
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


def make_impatient(stack: Stack, folder: Path, match: str) -> JoinPipeline:
    """Make a join on the event clock that allows two minutes of lateness, and takes 500 records a batch."""
    pipeline = JoinPipeline(
        folder, stack.kafka, stack.clickhouse_port, match=match, kind="left", event_clock=True,
        left_window=600, right_window=1200, lateness=120,
    )  # fmt: skip
    # A partitioned table takes 50 blocks a batch, here of 10 rows each.
    by_day = {"order_by": "tuple()", "partition_by": "intDiv(at, 86400)"}
    pipeline.sink = {"max_batch_size": 10, "create_table": by_day}
    make(pipeline)
    return pipeline


def later(pipeline: TwoTopics) -> list[tuple[str, Event]]:
    """Give events that move the clock past all of the first two hours."""
    return both(pipeline, "last", "-", pipeline.begin + 4 * HOUR)


def check_that_none_is_late(pipeline: TwoTopics) -> None:
    expected = recompute(pipeline, complete=(pipeline.begin + 4 * HOUR - pipeline.lateness) * SECOND)
    assert pipeline.rows() == expected.rows
    assert pipeline.join_ledger() == expected.counts
    assert expected.counts["matched"] > expected.counts["unmatched"] > 0


@pytest.mark.skipif(not RUNS_ALL, reason="make test-joins runs it")
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize("match", ["latest", "all"])
def test_a_side_that_is_an_hour_behind_the_other_joins_right(stack: Stack, tmp_path: Path, match: str) -> None:
    pipeline = make_impatient(stack, tmp_path, match)
    driver = CaughtUp(pipeline)
    driver.take([*hourly(pipeline, LEFT, 0, 200), *hourly(pipeline, RIGHT, 0, 200)], "read", 400)
    driver.take(hourly(pipeline, LEFT, 1, 600), "read", 1000)
    rights = hourly(pipeline, RIGHT, 1, 600)
    for part in range(3):
        driver.take(rights[part * 200 : (part + 1) * 200], "read", 1200 + part * 200)
    driver.take(later(pipeline), "waiting", 1)
    check_that_none_is_late(pipeline)


@pytest.mark.skipif(not RUNS_ALL, reason="make test-joins runs it")
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize(("left_shape", "right_shape"), [(3, 1 / 3), (1 / 3, 3)])
def test_backlogs_that_are_read_in_small_batches_join_right_though_one_side_gets_ahead(
    stack: Stack, tmp_path: Path, left_shape: float, right_shape: float
) -> None:
    pipeline = make_impatient(stack, tmp_path, "latest")
    lefts, rights = hourly(pipeline, LEFT, 1, 1500, left_shape), hourly(pipeline, RIGHT, 1, 2500, right_shape)
    driver = Killed(pipeline)
    try:
        driver.take([*hourly(pipeline, LEFT, 0, 200), *hourly(pipeline, RIGHT, 0, 200)], "read", 400)
        stop(pipeline)
        pipeline.send_sides([*lefts, *rights])
        start(pipeline)
        driver.take([], "read", 4400)
        driver.take(later(pipeline), "waiting", 1)
    finally:
        driver.stop()
    check_that_none_is_late(pipeline)
