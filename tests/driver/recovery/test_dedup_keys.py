"""How many batches must be replayed to recover the keys of a lost state; on Spark, with records made by the test."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.recovery.dedup_keys import Accepted, replay_dedup
from glassflow_dagster.driver.recovery.records import ROWS, LostCheckpoint, Records
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.ledger import BatchEntry, BatchRange
from glassflow_dagster.stores.kafka.topics import Offsets
from tests.support import definition as v3

DEFINITION = v3.definition(
    "made-up",
    v3.source("s", v3.fields(k="string"), topic="t"),
    v3.sink({"k": "String"}),
    v3.dedup("s", "k", time_window="10ms"),
)
# One key, once per batch, every 9 ms: whether a record is accepted depends on the previous acceptance.
TIMES = (0, 9, 18, 27, 36, 45)
DUPLICATES = (0, 1, 0, 1, 0, 1)


class FakeRecords(Records):
    """Returns one record with the key for each requested batch."""

    def rows(self, ranges: Iterable[BatchRange]) -> DataFrame:
        rows = [("t", 0, 0, r.first, r.batch_id, r.batch_time_ms, False, bytearray(b"k"), 0, "") for r in ranges]
        return self.spark.createDataFrame(rows, ROWS)


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(DEFINITION))
    return load_pipeline(file)


@pytest.fixture
def records(spark: SparkSession, config: PipelineConfig) -> Records:
    return FakeRecords(spark, config, None, "i", F.lit(""))  # type: ignore[arg-type] - no table is looked at


def lost_checkpoint(
    config: PipelineConfig, duplicates: Sequence[int] = DUPLICATES, first_kept: int = 0
) -> LostCheckpoint:
    """Return a lost checkpoint with one batch per time; Kafka still has the records from offset `first_kept` on."""
    batches = [
        BatchEntry(batch, time, config.digest, duplicates[batch], (BatchRange(batch, time, "t", 0, batch, batch + 1),))
        for batch, time in enumerate(TIMES)
    ]
    return LostCheckpoint(batches, {"t": {0: Offsets(first_kept, len(TIMES))}})


def known(accepted: Accepted, config: PipelineConfig, now_ms: int) -> list[tuple[bytes, int]]:
    """Return the keys that are known at a time, each with the time it expires."""
    dedup = config.dedup_of(config.source)
    assert dedup
    return [(bytes(row["key"]), row["until"]) for row in accepted.known(dedup, now_ms).collect()]


def test_as_many_batches_are_read_as_it_takes_to_count_the_ledgers_duplicates(
    records: Records, config: PipelineConfig
) -> None:
    """A replay of the last two windows alone would find the key accepted at 45 instead of 36."""
    read: list[str] = []
    accepted = replay_dedup(records, lost_checkpoint(config), 45, read.append)
    assert [text.partition(" again")[0] for text in read] == [
        "reading the records of batches 3 to 5",
        "reading the records of batches 1 to 5",
        "reading the records of batches 0 to 5",
    ]
    assert accepted.whole
    assert known(accepted, config, 45) == [(b"k", 46)]
    assert known(accepted, config, 46) == []


def test_what_the_ledger_did_not_count_is_refused(records: Records, config: PipelineConfig) -> None:
    with pytest.raises(GlassflowError, match="1 duplicates in batch 5, but the ledger has 0: Kafka's records differ"):
        replay_dedup(records, lost_checkpoint(config, (0, 1, 0, 1, 0, 0)), 45, print)
    with pytest.raises(GlassflowError, match="ledger has 1: Kafka has no records from before batch 3, which later"):
        replay_dedup(records, lost_checkpoint(config, first_kept=3), 45, print)


def test_records_that_kafka_has_removed_matter_while_their_keys_are_known(
    records: Records, config: PipelineConfig
) -> None:
    gone = lost_checkpoint(config, first_kept=len(TIMES))
    with pytest.raises(GlassflowError, match="Kafka has removed records that batch 5 has read; continue without"):
        replay_dedup(records, gone, 54, print)
    assert known(replay_dedup(records, gone, 55, print), config, 55) == []


def test_batches_of_another_definition_are_refused(records: Records, config: PipelineConfig) -> None:
    edited = lost_checkpoint(config.model_copy(update={"pipeline_id": "other"}))
    with pytest.raises(GlassflowError, match="batch 5 ran with another definition"):
        replay_dedup(records, edited, 45, print)


def test_without_deduplication_batches_before_an_edit_are_left_out(spark: SparkSession, config: PipelineConfig) -> None:
    """There are no keys to recover; earlier rows are known only back to the edit of the definition."""
    stateless = config.model_copy(update={"transforms": ()})
    records = FakeRecords(spark, stateless, None, "i", F.lit(""))  # type: ignore[arg-type] - no table is looked at
    before, after = lost_checkpoint(config), lost_checkpoint(stateless)
    for edit, read in ((0, 6), (4, 2), (6, 0)):
        batches = [*before.batches[:edit], *after.batches[edit:]]
        accepted = replay_dedup(records, LostCheckpoint(batches, after.offsets), 45, print)
        assert (accepted.rows.count(), accepted.whole) == (read, edit == 0)
