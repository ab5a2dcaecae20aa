"""First seen wins, by (partition, offset) within a batch and by batch time across batches; refused records pass."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from glassflow_dagster.config.model import DedupConfig
from glassflow_dagster.streaming.dedup import drop_duplicates

SCHEMA = (
    "topic_rank int, partition int, offset bigint, fields struct<k string, n bigint, f double>, row struct<v string>, "
    "size int, refused struct<reason string>, dropped string, exempt boolean"
)


class Feed:
    """Feeds batches of records through deduplication, a file a batch, and keeps what comes out of each."""

    def __init__(self, spark: SparkSession, folder: Path, dedup: DedupConfig) -> None:
        self._spark, self._folder, self._dedup = spark, folder, dedup
        self._count = 0
        (folder / "in").mkdir()

    def batch(self, records: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        target = self._folder / "in" / f"{self._count}.parquet"
        whole = [(*((0, *record, None) if len(record) == 6 else record), False)[:9] for record in records]
        self._spark.createDataFrame(whole, SCHEMA).coalesce(1).write.parquet(str(target))
        self._count += 1
        out: list[tuple[object, ...]] = []

        def keep(frame: DataFrame, _batch_id: int) -> None:
            out.extend(
                (
                    r.partition,
                    r.offset,
                    r.row.v if r.row else None,
                    r.refused.reason if r.refused else None,
                    r.duplicates,
                )
                for r in frame.collect()
            )

        events = self._spark.readStream.schema(SCHEMA).parquet(str(self._folder / "in" / "*"))
        stream = drop_duplicates(events, self._dedup).writeStream.foreachBatch(keep).trigger(availableNow=True)
        stream.option("checkpointLocation", str(self._folder / "checkpoint")).start().awaitTermination()
        return sorted(out, key=str)


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Iterator[Feed]:
    return Feed(spark, tmp_path, DedupConfig(key="k", time_window="1h"))


def event(partition: int, offset: int, key: str, value: str) -> tuple[object, ...]:
    return (partition, offset, (key, 0, 0.0), (value,), 10, None)


def test_the_least_partition_and_offset_survives_within_a_batch(feed: Feed) -> None:
    found = feed.batch([event(1, 3, "a", "late"), event(0, 9, "a", "first"), event(0, 10, "a", "later")])
    assert found == [(0, 9, "first", None, 2)]


def test_a_key_seen_in_an_earlier_batch_is_a_duplicate(feed: Feed) -> None:
    assert feed.batch([event(0, 0, "a", "first")]) == [(0, 0, "first", None, 0)]
    assert feed.batch([event(0, 1, "a", "again"), event(1, 0, "a", "again"), event(0, 2, "b", "new")]) == [
        (0, 1, None, None, 2),
        (0, 2, "new", None, 0),
    ]


def test_a_refused_record_passes_and_claims_no_key(feed: Feed) -> None:
    refused = (0, 0, ("a", 0, 0.0), None, 10, ("broken",))
    assert feed.batch([refused, refused]) == [(0, 0, None, "broken", 0), (0, 0, None, "broken", 0)]
    assert feed.batch([event(0, 1, "a", "good")]) == [(0, 1, "good", None, 0)]


def test_an_exempt_record_passes_its_own_key_and_claims_none(feed: Feed) -> None:
    """One that was let pass before, and refused by the server: its replay is no duplicate of itself."""
    assert feed.batch([event(0, 0, "a", "first")]) == [(0, 0, "first", None, 0)]
    exempt = [(1, *event(0, offset, key, "again"), None, True) for offset, key in enumerate("ab")]
    assert feed.batch(exempt) == [(0, 0, "again", None, 0), (0, 1, "again", None, 0)]
    assert feed.batch([event(0, 3, "b", "new")]) == [(0, 3, "new", None, 0)]


def test_parts_of_a_composite_key_do_not_run_together(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path, DedupConfig(keys=("k", "n", "f"), time_window="1h"))
    found = feed.batch(
        [
            (0, 0, ("a1", 2, 0.0), ("1",), 1, None),
            (0, 1, ("a", 12, 0.0), ("2",), 1, None),
            (0, 2, ("a", 12, -0.0), ("zero is zero",), 1, None),
            (0, 3, ("a", 12, 0.5), ("3",), 1, None),
        ]
    )
    assert found == [(0, 0, "1", None, 0), (0, 1, "2", None, 1), (0, 3, "3", None, 0)]


def test_long_keys_are_told_apart_and_found_again(spark: SparkSession, tmp_path: Path) -> None:
    """Beyond 24 bytes a state has digests of them; composite ones are long together."""
    feed = Feed(spark, tmp_path, DedupConfig(keys=("k", "n"), time_window="1h"))
    lengths = (*range(9, 14), 200, 70_000)
    long = [(0, place, ("k" * length, 7, 0.0), ("new",), 1, None) for place, length in enumerate(lengths)]
    other = (0, 90, ("k" * 69_999 + "j", 7, 0.0), ("other",), 1, None)
    assert [duplicates for *_, duplicates in feed.batch([*long, other])] == [0] * 8
    assert [duplicates for *_, duplicates in feed.batch([*long, other])] == [1] * 8


def test_the_window_ends_exactly_and_is_not_prolonged_by_duplicates(spark: SparkSession, tmp_path: Path) -> None:
    """With a window of a millisecond every batch is past the one before it: the key comes out each time."""
    feed = Feed(spark, tmp_path, DedupConfig(key="k", time_window="1ms"))
    for offset in range(3):
        assert feed.batch([event(0, offset, "a", "again")]) == [(0, offset, "again", None, 0)]
