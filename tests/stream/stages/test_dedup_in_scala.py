"""The first event wins: by (partition, offset) within a batch, by batch time across batches; rejected records pass."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.stream.spark.session import java
from glassflow_dagster.stream.stages.dedup_in_scala import drop_duplicates, put_known

SCHEMA = (
    "topic_rank int, partition int, offset bigint, fields struct<k string, n bigint, f double>, row struct<v string>, "
    "size int, dead_letter struct<reason string>, drop_reason string, exempt boolean"
)


class Feed:
    """Runs batches of records through deduplication, one file per batch, and keeps the output of each."""

    def __init__(self, spark: SparkSession, folder: Path, dedup: DedupConfig) -> None:
        self._spark, self._folder, self._dedup = spark, folder, dedup
        self._count = 0
        (folder / "in").mkdir()

    def batch(self, records: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        """Run one batch; return the events that pass."""
        self._write([(*((0, *record, None) if len(record) == 6 else record), False)[:9] for record in records])
        out: list[tuple[object, ...]] = []

        def keep(frame: DataFrame, _batch_id: int) -> None:
            rows = frame.collect()
            assert all(row.timestamp == row.offset for row in rows if row.row)
            out.extend(
                (
                    r.partition,
                    r.offset,
                    r.row.v if r.row else None,
                    r.dead_letter.reason if r.dead_letter else None,
                    r.duplicates,
                )
                for r in rows
            )

        self._run(drop_duplicates(self._events(), self._dedup).writeStream.foreachBatch(keep))
        return sorted(out, key=str)

    def run_batches(self, batches: list[list[str]]) -> list[int]:
        """Run batches of keys within one run of the query; return how many events of each batch pass."""
        for keys in batches:
            self._write([(0, 0, n, (key, 0, 0.0), ("",), 1, None, None, False) for n, key in enumerate(keys)])
        passed = []

        def keep(frame: DataFrame, _batch_id: int) -> None:
            passed.append(frame.where("row IS NOT NULL").count())

        self._run(drop_duplicates(self._events(), self._dedup).writeStream.foreachBatch(keep))
        return passed

    def _write(self, rows: list[tuple[object, ...]]) -> None:
        """Write a file, which a run reads as one batch."""
        target = self._folder / "in" / f"{self._count}.parquet"
        self._spark.createDataFrame(rows, SCHEMA).coalesce(1).write.parquet(str(target))
        self._count += 1

    def _events(self) -> DataFrame:
        one_a_batch = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        records = one_a_batch.parquet(str(self._folder / "in" / "*"))
        # Passes unchanged; equal to the offset, so that an event keeps its own.
        return records.withColumn("timestamp", F.col("offset"))

    def _run(self, writer: DataStreamWriter) -> None:
        at = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        at.trigger(availableNow=True).start().awaitTermination()

    def put(self, ends: dict[str, int]) -> None:
        """Put keys into the state; ends: key -> the millisecond since 1970 until which it is known."""
        self._write([(0, 0, 0, (key, until, 0.0), None, 0, None, None, False) for key, until in ends.items()])
        key = F.call_function("glassflow_key", "fields.k").alias("key")
        known = self._events().select(key, F.lit(0).alias("source"), F.col("fields.n").alias("until"))
        known = put_known(known, [self._dedup])
        self._run(known.writeStream.format("noop"))

    def count_entries(self, variable: str) -> int:
        """Count the entries of a state variable over all shards."""
        state = self._spark.read.format("statestore").option("path", str(self._folder / "checkpoint"))
        return state.option("stateVarName", variable).load().count()


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
    """A record that passed before and was rejected by the server: its replay is no duplicate of itself."""
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
    """The state stores keys of more than 24 bytes as digests; composite keys are longer together."""
    feed = Feed(spark, tmp_path, DedupConfig(keys=("k", "n"), time_window="1h"))
    lengths = (*range(9, 14), 200, 70_000)
    long = [(0, place, ("k" * length, 7, 0.0), ("new",), 1, None) for place, length in enumerate(lengths)]
    other = (0, 90, ("k" * 69_999 + "j", 7, 0.0), ("other",), 1, None)
    assert [duplicates for *_, duplicates in feed.batch([*long, other])] == [0] * 8
    assert [duplicates for *_, duplicates in feed.batch([*long, other])] == [1] * 8


def test_the_window_ends_exactly_and_is_not_prolonged_by_duplicates(spark: SparkSession, tmp_path: Path) -> None:
    """With a window of a millisecond every batch is after the previous batch's window: the key passes each time."""
    feed = Feed(spark, tmp_path, DedupConfig(key="k", time_window="1ms"))
    for offset in range(3):
        assert feed.batch([event(0, offset, "a", "again")]) == [(0, offset, "again", None, 0)]


def test_among_many_keys_of_one_batch_each_has_its_first(feed: Feed) -> None:
    """Hundreds of keys share a shard."""
    draw = random.Random(5)
    keys = [f"k{draw.randrange(1_000)}" for _ in range(4_000)]
    firsts = {key: place for place, key in reversed([*enumerate(keys)])}
    shuffled = draw.sample([event(0, place, key, key) for place, key in enumerate(keys)], len(keys))
    found = {offset: (value, others + 1) for _, offset, value, _, others in feed.batch(shuffled)}
    assert found == {place: (key, keys.count(key)) for key, place in firsts.items()}
    again = feed.batch([event(0, 4_000 + place, key, "again") for place, key in enumerate(firsts)])
    assert {value for _, _, value, _, _ in again} == {None}
    assert len(again) == len(firsts)


def test_what_has_ended_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path, DedupConfig(key="k", time_window="1ms"))
    feed.batch([event(0, place, f"k{place}", "new") for place in range(500)])
    assert feed.count_entries("ends0") == 500
    # Enough keys to reach all shards: fifty keys are new again.
    found = feed.batch([event(0, 500 + place, f"k{place}", "new") for place in range(450, 950)])
    assert {(value, others) for _, _, value, _, others in found} == {("new", 0)}
    assert feed.count_entries("ends0") == 500


def test_a_batch_forgets_about_what_it_brings_and_no_key_that_came_again(spark: SparkSession, tmp_path: Path) -> None:
    """A shard has hundreds of keys that expired long ago at different hours; each batch has one or two events.

    A batch removes whole packs, until these had 256 keys, and two for each key of its own.
    """
    feed = Feed(spark, tmp_path, DedupConfig(key="k", time_window="1h"))
    keys = of_one_shard(spark, 602)
    ended, again, other = keys[:600], keys[400], keys[600:]
    feed.put({key: 3_600_000 * hour for hour, key in enumerate(ended, start=1)})
    packs, most_of_a_pack = feed.count_entries("packs0"), 100
    assert feed.count_entries("ends0") == 600
    assert 600 / most_of_a_pack < packs < 20

    assert feed.batch([event(0, 0, again, "anew")]) == [(0, 0, "anew", None, 0)]
    assert 258 <= 600 - feed.count_entries("ends0") < 258 + most_of_a_pack
    assert 258 / most_of_a_pack < packs - feed.count_entries("packs0") < packs - 1
    # The pack with the expired key is removed now; the key itself, which came again, stays.
    assert feed.batch([event(0, 1, other[0], "new")]) == [(0, 1, "new", None, 0)]
    assert feed.batch([event(0, 2, again, "again"), event(0, 3, other[1], "new")]) == [
        (0, 2, None, None, 1),
        (0, 3, "new", None, 0),
    ]
    # With those of the last pack, which was not full.
    assert 3 <= feed.count_entries("ends0") < 3 + most_of_a_pack
    assert feed.count_entries("packs0") == 1


@pytest.mark.parametrize(("window", "most_keys", "most_packs"), [("1h", 300, 9), ("1ms", 20, 2)])
@pytest.mark.long
def test_small_batches_fill_up_packs_and_their_keys_are_forgotten(
    window: str, most_keys: int, most_packs: int, spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path, DedupConfig(key="k", time_window=window))
    keys = of_one_shard(spark, 300)
    assert feed.run_batches([keys[begin : begin + 10] for begin in range(0, 300, 10)]) == [10] * 30
    # When the window has passed: those of the last batch, and of the one before it.
    assert most_keys - 10 <= feed.count_entries("ends0") <= most_keys
    assert 1 <= feed.count_entries("packs0") <= most_packs


def test_batches_of_one_run_know_all_keys_of_those_before(feed: Feed, spark: SparkSession) -> None:
    """A driver caches filters of known keys and rebuilds them when they are full, at 4,096 keys of a shard."""
    keys = of_one_shard(spark, 7_000)
    batches = [keys[:2_000], keys[1_000:4_000], keys[3_900:4_050], keys[3_000:7_000], keys]
    assert feed.run_batches(batches) == [2_000, 2_000, 50, 2_950, 0]
    # A new run has only the state.
    assert feed.run_batches([keys[::2], ["other", *keys[::7]]]) == [0, 1]


def test_a_shard_of_many_small_batches_knows_its_keys(feed: Feed, spark: SparkSession) -> None:
    """Small packs are filled up, and a new driver reads all of them."""
    keys = of_one_shard(spark, 1_102)
    now = int(time.time() * 1000)
    feed.put({key: now + 3_600_000 * hour for hour, key in enumerate(keys[:1_100], start=1)})
    assert feed.run_batches([keys[:1_101], keys]) == [1, 1]


def test_kept_filters_are_good_for_the_next_batch_of_their_run_alone(spark: SparkSession) -> None:
    """Between two batches of a partition, another process may have processed one."""
    jvm = java(spark)
    key_filters, (query, run, other) = jvm.glassflow.KeyFilters, [jvm.java.util.UUID.randomUUID() for _ in range(3)]
    kept = key_filters.take(query, 0, run, 4, 1)
    for asked, is_kept in [((run, 5), True), ((run, 6), False), ((run, 4), False), ((other, 5), False)]:
        key_filters.keep(query, 0, 4, kept)
        assert key_filters.take(query, 0, *asked, 1).equals(kept) == is_kept
    # A second attempt of the same task does not share the filters that the first one has taken.
    key_filters.keep(query, 0, 4, kept)
    assert key_filters.take(query, 0, run, 5, 1).equals(kept)
    assert not key_filters.take(query, 0, run, 5, 1).equals(kept)


def test_keys_are_in_the_shards_that_checkpoints_have_them_in(spark: SparkSession) -> None:
    keys = spark.range(5).select(F.encode(F.concat(F.lit("\u0001k"), "id"), "utf-8").alias("key"))
    assert shards(keys, 1) == [15, 0, 11, 5, 9]
    assert shards(keys, 3) == [70, 11, 18, 28, 37]


def test_each_partition_of_the_state_has_as_many_shards(spark: SparkSession) -> None:
    """Spark's own hash determines a shard's partition."""
    for partitions in (1, 2, 3, 7):
        keys = spark.range(3_000).select(F.encode(F.concat(F.lit("\u0001"), "id"), "utf-8").alias("key"))
        found = spark.createDataFrame([(shard,) for shard in set(shards(keys, partitions))], "shard int")
        placed = found.groupBy(F.pmod(F.hash("shard"), F.lit(partitions))).count().collect()
        assert [row["count"] for row in placed] == [16] * partitions


def of_one_shard(spark: SparkSession, count: int) -> list[str]:
    """Return keys of one of the 32 shards that two partitions have."""
    names = [f"k{number}" for number in range(40 * count)]
    frame = spark.createDataFrame([(name,) for name in names], "k string")
    found = shards(frame.select(F.call_function("glassflow_key", "k").alias("key")), 2)
    return [name for name, shard in zip(names, found, strict=True) if shard == found[0]][:count]


def shards(keys: DataFrame, partitions: int) -> list[int]:
    shard = F.call_function("glassflow_shard", "key", F.lit(partitions))
    return [row["shard"] for row in keys.select(shard.alias("shard")).collect()]
