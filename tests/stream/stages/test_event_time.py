"""Deduplication on the event clock, compared with a plain Python reference over batches, restarts and replays."""

import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, Row, SparkSession

from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.stream.stages.dead_letter_column import keep_raw_of_dead_letters
from glassflow_dagster.stream.stages.dedup_in_scala import drop_duplicates_in_event_time
from glassflow_dagster.stream.stages.event_time import read_event_time
from tests.stream.stages.event_time import EventClock, Record

SCHEMA = (
    "topic string, topic_rank int, partition int, offset bigint, timestamp bigint, key binary, value binary, "
    "headers array<struct<key string, value binary>>, batch_time timestamp, fields struct<k string, t bigint>, "
    "error struct<stage string, reason string>, drop_reason string, exempt boolean, replayed boolean, "
    "row struct<v string>"
)
TIME = pa.timestamp("us", "UTC")
REASON = pa.struct([("stage", pa.string()), ("reason", pa.string())])
PARQUET = pa.schema([
    ("topic", pa.string()), ("topic_rank", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("batch_time", TIME), ("fields", pa.struct([("k", pa.string()), ("t", pa.int64())])),
    ("error", REASON), ("drop_reason", pa.string()), ("exempt", pa.bool_()), ("replayed", pa.bool_()),
    ("row", pa.struct([("v", pa.string())])),
])  # fmt: skip
FIELDS = [SchemaField(name="k", type="string"), SchemaField(name="t", type="int")]
SECOND = 1_000_000
HOUR = 3600 * SECOND
START = 1_780_000_000 * SECOND  # a time in 2026, at which the batches of the tests start
FAR_FUTURE = 4_070_908_800 * SECOND  # 2099


def config(late: str, lateness: int = HOUR) -> DedupConfig:
    return DedupConfig(
        key="k", time_window="1h", clock="event", event_time="t", event_time_unit="us", late=late,
        allowed_lateness=timedelta(microseconds=lateness),
    )  # fmt: skip


def moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def place(topic: int, partition: int, offset: int) -> str:
    return f"{topic}/{partition}/{offset}"


def event(record: Record, batch_time: int, **other: Any) -> dict[str, Any]:
    """Return a record in the form in which the stage receives it."""
    name = place(record.topic, record.partition, record.offset)
    return {
        "topic": f"topic{record.topic}", "topic_rank": record.topic, "partition": record.partition,
        "offset": record.offset, "timestamp": batch_time // 1000, "key": b"key", "value": name.encode(),
        "headers": [{"key": "h", "value": b"1"}], "batch_time": moment(batch_time),
        "fields": {"k": record.key, "t": record.time}, "error": None, "drop_reason": None, "exempt": False,
        "replayed": False,         "row": {"v": name}, **other,
    }  # fmt: skip


class Stream:
    """Runs batches through the stage on one checkpoint, one file per batch."""

    def __init__(self, spark: SparkSession, folder: Path, dedup: DedupConfig) -> None:
        self._spark, self._folder, self.dedup = spark, folder, dedup
        self._files = 0
        self.dropped_by_spark = 0
        self.timers_expired = 0
        (folder / "in").mkdir()

    def run(self, batches: Sequence[Sequence[dict[str, Any]]]) -> list[list[Row]]:
        """Run batches; return the output of each."""
        for batch in batches:
            file = self._folder / f"in/{self._files:05}.parquet"
            parquet.write_table(pa.Table.from_pylist(list(batch), PARQUET), file)
            os.utime(file, (self._files, self._files))  # the source reads the oldest file first
            self._files += 1
        return self.resume()

    def resume(self) -> list[list[Row]]:
        """Run the existing files: new batches, and the last one again if it is not committed."""
        out: dict[int, list[Row]] = {}

        def keep(frame: DataFrame, batch_id: int) -> None:
            out[batch_id] = frame.collect()

        source = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        timed = read_event_time(source.parquet(str(self._folder / "in")), self.dedup, FIELDS)
        stream = drop_duplicates_in_event_time(keep_raw_of_dead_letters(timed, "timing"), self.dedup).writeStream
        stream = stream.option("checkpointLocation", str(self._folder / "checkpoint")).foreachBatch(keep)
        query = stream.trigger(availableNow=True).start()
        query.awaitTermination()
        for operator in (operator for progress in query.recentProgress for operator in progress.stateOperators):
            self.dropped_by_spark += operator.numRowsDroppedByWatermark
            self.timers_expired += operator.customMetrics["numExpiredTimers"]
        return [out[batch_id] for batch_id in sorted(out)]

    def forget_last_commit(self) -> None:
        """Remove the last commit, as after a crash between a batch's last write and its commit."""
        commits = sorted((self._folder / "checkpoint/commits").glob("[0-9]*"), key=lambda file: int(file.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


def outcome(rows: Sequence[Row]) -> tuple[list[str], list[str], int]:
    """Return the positions of written and of late records, and the number of duplicates."""
    late = [
        row for row in rows if row.drop_reason == "late" or (row.dead_letter and "watermark" in row.dead_letter.reason)
    ]
    return (
        sorted(row.row.v for row in rows if row.row),
        sorted(place(row.topic_rank, row.partition, row.offset) for row in late),
        sum(row.duplicates for row in rows),
    )


def expected(clock: EventClock, records: Sequence[Record], batch_time: int) -> tuple[list[str], list[str], int]:
    written, late, duplicates = clock.batch(records, batch_time)
    return (
        sorted(place(r.topic, r.partition, r.offset) for r in written),
        sorted(place(r.topic, r.partition, r.offset) for r in late),
        duplicates,
    )


def random_batches(seed: int, window: int, lateness: int) -> list[tuple[int, list[Record]]]:
    """Return batches of a few keys: duplicates, disorder, exact window distances, late events, far-future times.

    Batch times increase, except for one before which the host's clock is set back.
    """
    draw = random.Random(seed)
    batches: list[tuple[int, list[Record]]] = []
    seen: list[Record] = []
    now = START
    for number in range(12):
        now += draw.choice([window // 3, window, 3 * window])
        records = []
        for offset in range(100 * number, 100 * number + draw.randrange(20, 60)):
            key, time = f"k{draw.randrange(12)}", now - draw.randrange(window)
            what = draw.random()
            if seen and what < 0.4:
                known = draw.choice(seen[-200:])
                key = known.key
                time = known.time + draw.choice([0, 1, -1, window, -window, window - 1, 1 - window, window // 2])
            elif what < 0.55:
                time -= draw.choice([lateness, lateness + 1, lateness + window, 5 * lateness])
            elif what < 0.6:
                time = draw.choice([FAR_FUTURE, now + 24 * HOUR + 1, now + window, now + 1])
            records.append(Record(draw.randrange(2), draw.randrange(3), offset, key, time))
        seen += records
        draw.shuffle(records)
        batches.append((now - (4 * window if number == 7 else 0), records))
    return batches


@pytest.mark.parametrize(("late", "lateness"), [("drop", HOUR), ("dead_letter", 10 * HOUR), ("keep", 60 * SECOND)])
def test_random_batches_go_as_the_reference_says_also_when_stopped_and_replayed(
    spark: SparkSession, tmp_path: Path, late: str, lateness: int
) -> None:
    stream, clock = Stream(spark, tmp_path, config(late, lateness)), EventClock(HOUR, lateness, late)
    batches = random_batches(lateness, HOUR, lateness)
    events = [[event(record, time) for record in records] for time, records in batches]

    found = stream.run(events[:8])
    stream.forget_last_commit()
    replayed = stream.resume()
    assert [sorted(rows, key=str) for rows in replayed] == [sorted(found[-1], key=str)]
    found += stream.run(events[8:])

    assert [outcome(rows) for rows in found] == [expected(clock, records, time) for time, records in batches]
    written, late_ones, duplicates = zip(*map(outcome, found), strict=True)
    counts = (sum(map(len, written)), sum(map(len, late_ones)), sum(duplicates))
    assert sum(counts) == sum(len(records) for _, records in batches)
    # The draw has enough cases of each kind.
    assert counts[0] > 50
    assert (counts[1] > 10) == (late != "keep")
    assert counts[2] > 50
    assert stream.timers_expired > 0
    assert stream.dropped_by_spark == 0


def test_what_is_exactly_a_window_or_the_lateness_apart_passes(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, config("drop"))
    now = START + 100 * HOUR
    first = [
        Record(0, 0, 0, "before", now - HOUR),
        Record(0, 0, 1, "before", now),
        Record(0, 0, 2, "within", now - HOUR + 1),
        Record(0, 0, 3, "within", now),
        Record(0, 0, 4, "order", now),
        Record(0, 1, 0, "order", now - 2 * HOUR),  # out of order, and a window away
        Record(0, 0, 5, "the future", FAR_FUTURE),
        Record(0, 0, 6, "the future", FAR_FUTURE - HOUR),
    ]
    then = [
        Record(0, 0, 7, "in time", now - HOUR),  # exactly at the watermark, which the future event did not move
        Record(0, 0, 8, "too late", now - HOUR - 1000),
        Record(0, 1, 1, "order", now - HOUR),
        Record(0, 1, 2, "the future", FAR_FUTURE + HOUR - 1),
    ]
    found = stream.run([[event(record, now) for record in batch] for batch in (first, then)])
    assert outcome(found[0]) == (["0/0/0", "0/0/1", "0/0/2", "0/0/4", "0/0/5", "0/0/6", "0/1/0"], [], 1)
    assert outcome(found[1]) == (["0/0/7", "0/1/1"], ["0/0/8"], 1)


def test_window_lateness_and_what_becomes_of_late_events_may_change(spark: SparkSession, tmp_path: Path) -> None:
    stream, now = Stream(spark, tmp_path, config("drop")), START + 100 * HOUR
    stream.run([[event(Record(0, 0, 0, "a", START), now)]])
    changes = {"time_window": timedelta(hours=3), "allowed_lateness": timedelta(minutes=90), "late": "keep"}
    stream.dedup = stream.dedup.model_copy(update=changes)
    batches = [
        [Record(0, 0, 1, "b", START + 2 * HOUR + HOUR // 2)],
        # The watermark is an hour behind `now`; with the old window, key a would expire.
        [Record(0, 0, 2, "c", START)],
        [Record(0, 0, 3, "a", START + 3 * HOUR - 1), Record(0, 0, 4, "d", START + 6 * HOUR)],
        [Record(0, 0, 5, "a", START + 3 * HOUR - 1)],  # late, and key a expires with the new window, too
    ]
    found = stream.run([[event(record, now) for record in batch] for batch in batches])
    assert [outcome(rows) for rows in found] == [
        (["0/0/1"], [], 0), (["0/0/2"], [], 0), (["0/0/4"], [], 1), (["0/0/5"], [], 0),
    ]  # fmt: skip


def test_a_time_of_the_far_future_makes_no_backlog_late(spark: SparkSession, tmp_path: Path) -> None:
    stream, present = Stream(spark, tmp_path, config("drop")), START + 10_000 * HOUR
    first = [Record(0, 0, 0, "a", START), Record(0, 0, 1, "b", FAR_FUTURE), Record(0, 0, 2, "c", present + 25 * HOUR)]
    then = [Record(0, 0, 3, "d", START - HOUR), Record(0, 0, 4, "e", START - HOUR - 1000)]
    ahead = [Record(0, 0, 5, "f", present + 24 * HOUR)]
    at_last = [Record(0, 0, 6, "g", present - HOUR), Record(0, 0, 7, "h", START)]
    found = stream.run([[event(record, present) for record in batch] for batch in (first, then, ahead, at_last)])
    assert [outcome(rows)[1] for rows in found] == [[], ["0/0/4"], [], ["0/0/7"]]


def test_a_late_event_becomes_a_dead_letter_with_all_that_is_known_and_claims_no_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path, config("dead_letter", lateness=60 * SECOND))
    refused = {"error": {"stage": "mapping", "reason": "broken"}, "row": None}
    first = [event(Record(0, 0, 0, "a", START + HOUR), START + HOUR)]
    late = Record(1, 0, 1, "b", START + 500_000)
    then = [
        event(late, START + HOUR),
        # Rejected and filtered records are not late whatever their time, and keep their outcome.
        event(Record(0, 0, 2, "c", START), START + HOUR, **refused),
        event(Record(0, 0, 3, "d", START), START + HOUR, drop_reason="filtered", row=None),
        # Neither are records that passed deduplication before the server rejected them.
        event(Record(0, 0, 5, "e", START), START + HOUR, exempt=True),
        # A replayed record is written however late it is, unless its key is known.
        event(Record(0, 0, 6, "f", START), START + HOUR, replayed=True),
        event(Record(0, 0, 7, "f", START), START + HOUR, replayed=True),
    ]
    again = [event(Record(0, 0, 4, "b", START + HOUR), START + HOUR)]

    found = {row.offset: row for rows in stream.run([first, then, again]) for row in rows}

    dead_letter = found[1].dead_letter.asDict(recursive=True)
    assert dead_letter == {
        "topic": "topic1", "timestamp": (START + HOUR) // 1000, "key": b"key", "value": b"1/0/1",
        "headers": [{"name": "h", "value": b"1"}], "stage": "dedup",
        "reason": "event_time 't': '2026-05-28T20:26:40.5Z' is behind the watermark 2026-05-28T21:25:40Z",
    }  # fmt: skip
    assert (found[1].row, found[1].drop_reason) == (None, None)
    assert (found[2].dead_letter.reason, found[2].row, found[2].drop_reason) == ("broken", None, None)
    assert (found[3].dead_letter, found[3].row, found[3].drop_reason) == (None, None, "filtered")
    assert (found[4].row.v, found[5].row.v) == ("0/0/4", "0/0/5")
    assert (found[6].row.v, found[6].duplicates) == ("0/0/6", 1)


def no_text(value: str) -> str:
    return f"event_time 't': '{value}' is not a time (write 2024-10-28T10:00:05Z)"


def no_time(value: str, unit: str) -> str:
    return f"event_time 't': '{value}' {unit} since 1970 is not within the years 1 to 9999; see event_time_unit"


TIMES: list[tuple[str, str, object, int | str]] = [
    ("string", "s", "2026-05-28T20:26:40Z", START),
    ("string", "s", "2026-05-28 22:26:40.123456789+02:00", START + 123_456),
    ("string", "s", "2026-05-28 20:26:40 UTC", START),
    ("string", "s", "2026-05-28T22:26:40.5+0200", START + 500_000),
    ("string", "s", "2026-05-28 20:26:40.5+00", START + 500_000),
    ("string", "s", "2026-05-28 18:26:40 -0200", START),
    ("string", "s", "2026-05-28T20:26Z", START - 40 * SECOND),
    ("string", "s", "2026-05-28 20:26", START - 40 * SECOND),
    ("string", "s", "2026-05-28T20:26:40 EST", no_text("2026-05-28T20:26:40 EST")),
    ("string", "s", "2026-05-28T20:26:40+2", no_text("2026-05-28T20:26:40+2")),
    ("string", "s", "2026-05-28", START - 73_600 * SECOND),
    ("string", "s", "yesterday", no_text("yesterday")),
    ("string", "s", "2026-13-01", no_text("2026-13-01")),
    ("string", "s", "", no_text("")),
    ("int", "s", 1_780_000_000, START),
    ("int", "ms", 1_780_000_000_001, START + 1000),
    ("int", "us", START + 1, START + 1),
    ("int", "ns", START * 1000 + 1999, START + 1),
    ("int", "s", -1, -SECOND),
    ("int", "s", 1_780_000_000_000, no_time("1780000000000", "seconds")),
    ("int", "s", 2**63 - 1, no_time("9223372036854775807", "seconds")),
    ("int", "ns", 2**63 - 1, (2**63 - 1) // 1000),
    ("uint", "s", 1_780_000_000, START),
    ("uint", "ns", 2**64 - 1, no_time("18446744073709551615", "nanoseconds")),
    ("float", "s", 1_780_000_000.000001, START + 1),
    ("float", "ms", 1_780_000_000_000.5, START + 500),
    ("float", "ns", 1.78e18, START),
    ("float", "s", 1e300, no_time("1.0E300", "seconds")),
]  # fmt: skip


def test_every_form_of_a_time_is_read_or_refused_with_a_reason(spark: SparkSession) -> None:
    carriers = {"string": "string", "int": "bigint", "uint": "decimal(20,0)", "float": "double"}
    for kind, unit in dict.fromkeys((kind, unit) for kind, unit, _, _ in TIMES):
        cases = {value: expected for k, u, value, expected in TIMES if (k, u) == (kind, unit)}
        raw = event(Record(0, 0, 0, "k", 0), START)
        records = [
            {**raw, "fields": {"k": str(value), "t": Decimal(value) if kind == "uint" else value}} for value in cases
        ]
        schema = SCHEMA.replace(" t bigint", f" t {carriers[kind]}")
        dedup = config("drop").model_copy(update={"event_time_unit": None if kind == "string" else unit})
        fields = [FIELDS[0], SchemaField(name="t", type=kind)]
        timed = read_event_time(spark.createDataFrame(records, schema), dedup, fields).collect()
        found = {row.fields.k: row.error.reason if row.error else row.timing.event_time for row in timed}
        assert found == {str(value): expected for value, expected in cases.items()}
        assert all((row.timing is None) == (row.error is not None) for row in timed)
