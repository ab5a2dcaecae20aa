"""Joins end to end: the table is what the topics' contents make by definition, through kills and silence."""

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Stack
from tests.e2e.joins import LEFT, RIGHT, JoinPipeline, recompute, seeded
from tests.e2e.support import kill, start, status, stop, wait_until
from tests.e2e.test_dead_letters import verified

# Of each clock one, and one of them with a kill: `make test-joins` runs all, and kills in the middle of half of them.
ALL = [
    (clock, match, kind, number % 2 == 0)
    for number, (clock, match, kind) in enumerate(
        itertools.product(("processing", "event"), ("latest", "all"), ("inner", "left"))
    )
]
DRAWN = [("processing", "latest", "left", True), ("event", "all", "inner", False)]
CASES = ALL if os.environ.get("GLASSFLOW_TEST_JOINS") == "all" else DRAWN
SEEDS = 20
TOTALS = ("read", "written", "duplicates", "filtered", "late", "dead_letters", "accepted", "matched", "unmatched",
          "waiting", "null_keys", "joined")  # fmt: skip
FAR_FUTURE = 4_070_908_800  # 2099


def make(stack: Stack, folder: Path, **how: object) -> JoinPipeline:
    pipeline = JoinPipeline(folder, stack.kafka, stack.clickhouse_port, **how)  # type: ignore[arg-type]
    pipeline.client().command(f"CREATE DATABASE IF NOT EXISTS {pipeline.name}")
    return pipeline


class Killed:
    """A driver in the background, which dies once in the middle and comes back."""

    def __init__(self, pipeline: JoinPipeline) -> None:
        self._pipeline, self._deaths = pipeline, 0
        start(pipeline)

    def take(self, events: Sequence[tuple[str, Any]], name: str, count: int) -> None:
        """Send events, and wait until a figure of the ledger has come to a number."""
        self._pipeline.send_sides(events)
        if not self._deaths:
            self._deaths = 1
            kill(self._pipeline)
            start(self._pipeline)
        wait_until(lambda: self._pipeline.join_ledger()[name] == count, f"{name} is {count}")

    def stop(self) -> None:
        stop(self._pipeline)


class CaughtUp:
    """Runs in this process, each until all is read."""

    def __init__(self, pipeline: JoinPipeline) -> None:
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


@pytest.mark.servers
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize(("clock", "match", "kind", "killed"), CASES)
def test_the_rows_are_those_that_the_topics_make(  # noqa: PLR0913, PLR0917 - a case's parts
    stack: Stack, tmp_path: Path, clock: str, match: str, kind: str, killed: bool
) -> None:
    pipeline = make(stack, tmp_path, match=match, kind=kind, event_clock=clock == "event")
    pipeline.write().create_topic()
    begin = int(time.time()) - 86_400
    events = [event for seed in range(SEEDS) for event in seeded(seed, 20, 20, begin, 600)]
    thirds = [events[i::3] for i in range(3)]
    thirds[1] += [(LEFT, b"{not json"), (RIGHT, {"id": "future", "owner": "0 of 0", "at": FAR_FUTURE})]
    last = begin + 86_000
    flush = [
        (LEFT, {"id": "last left", "user": "last", "at": last}),
        (RIGHT, {"id": "last right", "owner": "-", "at": last}),
    ]
    late = [
        (LEFT, {"id": "late left", "user": "0 of 0", "at": begin}),
        (RIGHT, {"id": "late right", "owner": "0 of 0", "at": begin}),
    ]
    driver = Killed(pipeline) if killed else CaughtUp(pipeline)
    try:
        sent = 0
        for third in thirds:
            sent += len(third)
            driver.take(third, "read", sent)
        if clock == "event":
            driver.take(flush, "waiting", 1)  # the clock has passed all but the last event
            driver.take(late, "late", 2)
        else:
            driver.take([], "waiting", 0)  # those that wait are decided in silence
    finally:
        driver.stop()
    expected = recompute(pipeline, ("late left", "late right") if clock == "event" else (), (last - 600) * 1_000_000)
    assert pipeline.rows() == expected.rows
    assert pipeline.join_ledger() == expected.counts
    report = verified(pipeline)
    assert (report["counts"]["passed"], report["unmatched"]["passed"]) == (True, True)
    beat = status(pipeline)
    assert {name: beat["totals"][name] for name in TOTALS} == {name: expected.counts[name] for name in TOTALS}
    assert beat["lags"] == {pipeline.topic(LEFT): 0, pipeline.topic(RIGHT): 0}
    assert beat["state_bytes"] > 0
