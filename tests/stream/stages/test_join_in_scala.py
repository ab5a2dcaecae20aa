"""The join, compared with a plain Python reference: both clocks and matches, batches, idle sources and restarts."""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.stream.stages.clock_source_in_scala import ClockSource
from glassflow_dagster.stream.stages.columns import TALLIES
from glassflow_dagster.stream.stages.join_in_scala import join_inputs
from tests.stream.stages.joins import JoinEvent, Windows, joined

SCHEMA = (
    "source int, topic_rank int, partition int, offset bigint, join_key binary, time bigint, max_event_time bigint, "
    "keep_late boolean, body binary, size int, dead_letter struct<reason string>, drop_reason string, duplicates bigint"
)
PARQUET = pa.schema([
    ("source", pa.int32()), ("topic_rank", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("join_key", pa.binary()), ("time", pa.int64()), ("max_event_time", pa.int64()),
    ("keep_late", pa.bool_()), ("body", pa.binary()), ("size", pa.int32()),
    ("dead_letter", pa.struct([("reason", pa.string())])), ("drop_reason", pa.string()), ("duplicates", pa.int64()),
])  # fmt: skip
LEFT, RIGHT = 0, 1
SECOND = 1_000_000
START = 1_780_000_000 * SECOND  # a time in 2026
LEAST = -(2**63)


def config(
    match: str = "latest", clock: str = "processing", kind: str = "inner", left: int = 60, right: int = 60
) -> JoinConfig:
    return JoinConfig.model_validate({
        "enabled": True, "type": kind, "match": match, "clock": clock,
        "left_source": {"source_id": "l", "key": "k", "time_window": f"{left}s"},
        "right_source": {"source_id": "r", "key": "k", "time_window": f"{right}s"},
        "output_fields": [{"source_id": "l", "name": "k"}],
    })  # fmt: skip


def record(source: int, event: JoinEvent, **other: Any) -> dict[str, Any]:
    """Return an event in the form in which the stage receives it."""
    rank, partition, offset = event.place
    key = None if event.key is None else b"\1" + event.key.encode()
    return {
        "source": source, "topic_rank": rank, "partition": partition, "offset": offset, "join_key": key,
        "time": event.time, "max_event_time": event.time, "keep_late": False, "body": event.name.encode(), "size": 10,
        "dead_letter": None, "drop_reason": None, "duplicates": 0, **other,
    }  # fmt: skip


class Stream:
    """Runs batches through the join on one checkpoint, one file per batch."""

    def __init__(self, spark: SparkSession, folder: Path, join: JoinConfig) -> None:
        self._spark, self._folder, self.join = spark, folder, join
        self._files = 0
        self.ticks = ClockSource(spark, folder.name + str(id(self)))
        self.rows: list[tuple[str, str | None]] = []
        self.passed: list[dict[str, Any]] = []
        self.tallies: Counter[str] = Counter()
        self.max_event_times = {"left": LEAST, "right": LEAST}
        self.last_data_batch_time = 0  # microseconds
        self._batch_times: list[int] = []
        (folder / "in").mkdir()

    @property
    def keys_held(self) -> int:
        """Return the number of keys in the state."""
        state = self._spark.read.format("statestore").option("stateVarName", "held")
        return state.load(str(self._folder / "checkpoint")).count()

    def run(self, *batches: Sequence[dict[str, Any]]) -> None:
        for batch in batches:
            file = self._folder / f"in/{self._files:05}.parquet"
            parquet.write_table(pa.Table.from_pylist(list(batch), PARQUET), file)
            os.utime(file, (self._files, self._files))  # the source reads the oldest file first
            self._files += 1
            self._batch_times.clear()
            self.tick()
            # The first batch of a query reads this file.
            self.last_data_batch_time = self._batch_times[0]

    def tick(self) -> None:
        """Run a query until it has nothing to do; each call is a restart."""
        events = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = join_inputs(events.parquet(str(self._folder / "in")), self.join, self.ticks.read())
        stream = rows.writeStream.foreachBatch(self._keep).trigger(availableNow=True)
        stream.option("checkpointLocation", str(self._folder / "checkpoint")).start().awaitTermination()

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        lines = (self._folder / f"checkpoint/offsets/{batch_id}").read_text().splitlines()
        self._batch_times.append(json.loads(lines[1])["batchTimestampMs"] * 1000)
        seen = frame.collect()
        self.rows += [(r.left.decode(), r.right.decode() if r.right else None) for r in seen if r.left]
        self.passed += [r.asDict(recursive=True) for r in seen if r.dead_letter or r.drop_reason]
        for name in TALLIES:
            self.tallies[name] += sum(r[name] for r in seen)
        for side in self.max_event_times:
            self.max_event_times[side] = max([self.max_event_times[side], *(r[f"{side}_max_event_time"] for r in seen)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def events(draw: random.Random, seed: int, count: int, spread: int) -> list[tuple[int, JoinEvent]]:
    """Return events of a few keys of both sources, each with a time of its own."""
    times = draw.sample(range(spread), count)
    found = []
    for number, at in enumerate(times):
        side = draw.choice((LEFT, RIGHT))
        key = f"{seed}/{draw.randrange(3)}"
        found.append((side, JoinEvent(f"{seed}/{number}", key, START + at * SECOND, (side, 0, seed * 1000 + number))))
    return found


@pytest.mark.parametrize("match", ["latest", "all"])
def test_any_order_of_arrival_gives_the_rows_of_the_definition(spark: SparkSession, folder: Path, match: str) -> None:
    draw = random.Random(7)
    stream = Stream(spark, folder, config(match, "event", "left", left=30, right=50))
    windows = Windows(left=30 * SECOND, right=50 * SECOND)
    all_events = [found for seed in range(20) for found in events(draw, seed, 30, 200)]
    draw.shuffle(all_events)
    third = len(all_events) // 3
    stream.run(*([record(*found) for found in all_events[i : i + third]] for i in range(0, len(all_events), third)))
    assert stream.max_event_times == {
        side: max(e.time for s, e in all_events if s == number) for number, side in enumerate(stream.max_event_times)
    }

    stream.ticks.move_to((START + 1000 * SECOND) // 1000)
    stream.tick()
    lefts = [event for side, event in all_events if side == LEFT]
    expected = joined(lefts, [event for side, event in all_events if side == RIGHT], windows, match)
    alone = {(left.name, None) for left in lefts} - {(name, None) for name, _ in expected}
    assert Counter(stream.rows) == Counter(expected | alone)
    assert stream.tallies == Counter(
        accepted=len(all_events) - len(lefts), matched=len(lefts) - len(alone), unmatched=len(alone),
        taken=len(all_events), waiting=0, late=0, null_keys=0, duplicates=0,
    )  # fmt: skip


@pytest.mark.parametrize("match", ["latest", "all"])
@pytest.mark.long
def test_on_the_processing_clock_the_times_are_those_of_the_batches(
    spark: SparkSession, folder: Path, match: str
) -> None:
    draw = random.Random(11)
    stream = Stream(spark, folder, config(match, "processing", "left", left=6, right=9))
    parts = [events(draw, seed, 30, 200) for seed in range(20)]
    batches = [[found for part in parts for found in part[i::4]] for i in range(4)]
    lefts, rights = [], []
    for batch in batches:
        stream.run([record(*found) for found in batch])
        for side, event in batch:
            place = JoinEvent(event.name, event.key, stream.last_data_batch_time, event.place)
            (lefts if side == LEFT else rights).append(place)
    stream.ticks.trigger_every(1)
    deadline = time.monotonic() + 120
    while stream.tallies["waiting"] and time.monotonic() < deadline:
        stream.tick()
    assert stream.tallies["waiting"] == 0
    expected = joined(lefts, rights, Windows(6 * SECOND, 9 * SECOND), match)
    alone = {(left.name, None) for left in lefts} - {(name, None) for name, _ in expected}
    assert Counter(stream.rows) == Counter(expected | alone)


def test_what_matches_nothing_is_counted_and_what_was_refused_passes(spark: SparkSession, folder: Path) -> None:
    stream = Stream(spark, folder, config(kind="inner"))
    left, right = (JoinEvent(name, None, START, (side, 0, side)) for side, name in enumerate(("l", "r")))
    gone = JoinEvent("gone", "k", START, (0, 1, 5))
    stream.run([
        record(LEFT, left), record(RIGHT, right),
        record(LEFT, gone, dead_letter={"reason": "why"}), record(LEFT, gone, offset=6, drop_reason="filtered"),
        # Deduplication forwards the first record of a key, and the number of its duplicates.
        {**record(LEFT, gone, offset=7, body=None, keep_late=None, duplicates=3), "source": None},
        record(RIGHT, JoinEvent("kept", "k", START, (1, 0, 9)), duplicates=2),
    ])  # fmt: skip
    assert stream.rows == []
    passed = {row["offset"]: (row["dead_letter"], row["drop_reason"]) for row in stream.passed}
    assert passed == {5: ({"reason": "why"}, None), 6: (None, "filtered")}
    assert stream.tallies == Counter(
        taken=3, accepted=2, unmatched=1, null_keys=2, duplicates=5, matched=0, waiting=0, late=0
    )


def test_an_event_at_the_very_time_of_the_clock_is_decided_when_the_clock_moves_on(
    spark: SparkSession, folder: Path
) -> None:
    stream = Stream(spark, folder, config(clock="event", left=60, right=60))
    stream.run([record(RIGHT, JoinEvent("r", "k", START, (1, 0, 0)))])
    stream.ticks.move_to((START + 10 * SECOND) // 1000)
    stream.tick()
    stream.run([record(LEFT, JoinEvent("l", "k", START + 10 * SECOND, (0, 0, 0)))])
    assert stream.rows == []
    stream.ticks.move_to((START + 11 * SECOND) // 1000)
    stream.tick()
    assert stream.rows == [("l", "r")]


def test_a_late_event_is_counted_and_a_replayed_one_finds_what_is_held(spark: SparkSession, folder: Path) -> None:
    stream = Stream(spark, folder, config(clock="event", left=60, right=60))
    at = [JoinEvent(f"r{n}", "k", START + n * SECOND, (1, 0, n)) for n in range(3)]
    stream.run([record(RIGHT, event) for event in at])
    stream.ticks.move_to((START + 50 * SECOND) // 1000)
    stream.tick()
    late = JoinEvent("late", "k", START + 3 * SECOND, (0, 0, 1))
    stream.run([record(LEFT, late), record(LEFT, late, offset=2, body=b"again", keep_late=True)])
    assert stream.rows == [("again", "r2")]
    assert (stream.tallies["late"], stream.tallies["matched"], stream.tallies["waiting"]) == (1, 1, 0)


@pytest.mark.long
def test_a_join_that_never_matches_holds_no_more_after_ten_windows_than_after_one(
    spark: SparkSession, folder: Path
) -> None:
    """Each batch moves the clock by one window, so the state holds the events of the last windows only."""
    stream = Stream(spark, folder, config(clock="event", left=10, right=10))
    held = []
    for number in range(12):
        at = START + number * 10 * SECOND
        batch = [
            record(side, JoinEvent(f"{side}/{number}/{n}", f"{side} {number} {n}", at, (side, 0, number * 20 + n)))
            for side in (LEFT, RIGHT)
            for n in range(20)
        ]
        stream.ticks.move_to(at // 1000)
        stream.run(batch)
        held.append(stream.keys_held)
    assert len(set(held[2:])) == 1
    assert stream.tallies["unmatched"] + stream.tallies["waiting"] == 240


@pytest.mark.long
def test_a_hundred_thousand_events_of_one_key_wait_and_are_matched_each_once(spark: SparkSession, folder: Path) -> None:
    count = 100_000
    stream = Stream(spark, folder, config(left=3600, right=3600))
    half = count // 2
    lefts = [record(LEFT, JoinEvent(str(n), "hot", START, (0, 0, n))) for n in range(count)]
    stream.run(lefts[:half])
    stream.run(lefts[half:])
    assert (stream.tallies["waiting"], len(stream.rows)) == (count, 0)
    stream.run([record(RIGHT, JoinEvent("right", "hot", START, (1, 0, 0)))])
    assert stream.tallies["waiting"] == 0
    assert Counter(stream.rows) == Counter((str(n), "right") for n in range(count))
