"""Each record's batch, and which records of a key produce rows; on Spark with records made by the test."""

import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.expected import FirstOfWindows, first_of_windows, whole_ranges, with_batches
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.stores.bookkeeping.ledger import BatchRange


def test_each_record_is_found_in_its_batch_however_uneven_batches_are(spark: SparkSession) -> None:
    draw = random.Random(3)
    ranges, first = [], 7
    for batch in range(40):
        until = first + draw.choice([0, 1, 2, 300])
        ranges += [BatchRange(batch, 1000 + batch, "t", 0, first, until), BatchRange(batch, 1000 + batch, "t", 1, 5, 5)]
        first = until
    offsets = list(range(first + 3))  # some records before the first batch, some after the last
    records = spark.createDataFrame(
        [("t", 0, offset) for offset in offsets], "topic STRING, partition INT, offset LONG"
    )

    found = {row["offset"]: (row["batch_id"], row["batch_ms"]) for row in with_batches(records, ranges).collect()}

    wanted = {o: (r.batch_id, r.batch_time_ms) for r in ranges for o in range(r.first, r.until) if r.partition == 0}
    assert found == wanted
    assert whole_ranges(ranges) == {"t": {0: (7, first)}}


def test_a_key_has_a_row_again_once_a_window_is_over_since_the_last_accepted_one(spark: SparkSession) -> None:
    places = {
        # key: (batch_ms, topic_rank, partition, offset), and whether it has a row, with a window of 10
        "a": [((100, 0, 0, 5), False), ((100, 0, 0, 3), True), ((109, 0, 0, 6), False), ((110, 0, 0, 9), True)],
        # A duplicate does not prolong the window.
        "b": [((100, 0, 1, 1), True), ((108, 0, 1, 2), False), ((116, 0, 0, 1), True), ((125, 0, 0, 2), False)],
        "c": [((100, 1, 0, 0), False), ((100, 0, 1, 9), False), ((100, 0, 0, 99), True)],
    }
    rows = [(key.encode(), *place, has_row, False) for key, listed in places.items() for place, has_row in listed]
    # Records that were replayed after the server had rejected them: they share a key that no event has.
    rows += [(b"", 100, 2, 0, offset, True, True) for offset in (1, 2)]
    random.Random(1).shuffle(rows)
    frame = spark.createDataFrame(
        rows,
        "dedup_key BINARY, batch_ms LONG, topic_rank INT, partition INT, offset LONG, has_row BOOLEAN, exempt BOOLEAN",
    )
    dedup = DedupConfig(key="id", time_window=timedelta(milliseconds=10))
    found = first_of_windows(frame, dedup).collect()
    assert all(row["has_row"] for row in found)
    assert len(found) == sum(has_row for *_, has_row, _ in rows)


@pytest.mark.parametrize("cut", [1, 2, 3, 7])
def test_a_key_that_lies_in_two_arrow_batches_is_one_key(cut: int) -> None:
    rows: list[dict[str, Any]] = [
        {"dedup_key": key, "batch_ms": time, "exempt": False} for key in (b"a", b"b") for time in (0, 4, 9, 10, 19, 20)
    ]
    whole = pa.Table.from_pylist(rows)
    kept = pa.Table.from_batches(FirstOfWindows(10)(whole.to_batches(max_chunksize=cut)))
    assert kept.column("batch_ms").to_pylist() == [0, 10, 20] * 2
