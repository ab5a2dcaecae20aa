"""Rebuilds the keys of a lost deduplication state by deduplicating the records of the last batches again.

The rows accepted before the first of these batches are unknown, and they can matter: a key that keeps coming is
accepted once per window, and each acceptance depends on the one before. So the duplicates of every batch in the last
window are compared with the ledger's counts; if one differs, more batches are replayed, up to all that Kafka has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.checks.exact.expected import first_of_windows
from glassflow_dagster.definition.model.durations import milliseconds
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.driver.recovery.cannot_rebuild import CannotRebuild
from glassflow_dagster.driver.recovery.records import LostCheckpoint, Records, computed
from glassflow_dagster.stores.bookkeeping.ledger import BatchEntry

# Deduplication windows in the first attempt: the last one, whose counts are compared, and the one before, because what
# is a duplicate in a window depends on the rows accepted in the window before.
_WINDOWS = 2


@dataclass(frozen=True)
class Accepted:
    """The rows that deduplication accepts in the replayed batches.

    `whole`: these are all batches of the ledger.
    rows: columns as in `Records.rows`; computed.
    """

    rows: DataFrame
    whole: bool

    def known(self, dedup: DedupConfig, now_ms: int) -> DataFrame:
        """Return the keys in the state at a batch time. Columns out: key BINARY, until LONG, as in `put_known`."""
        until = (F.col("batch_ms") + F.lit(milliseconds(dedup.time_window))).alias("until")
        keys = self.rows.where(~F.col("exempt")).select(F.col("dedup_key").alias("key"), until)
        return keys.where(F.col("until") > F.lit(now_ms)).groupBy("key").agg(F.max("until").alias("until"))


def replay_dedup(records: Records, past: LostCheckpoint, now_ms: int, report: Callable[[str], None]) -> Accepted:
    """Deduplicate the records of the last batches again and return the accepted rows.

    Without deduplication, return the rows of all batches that Kafka still has and that ran with this definition. Return
    no rows where Kafka has none of the batches, but all keys have expired.
    Raises `CannotRebuild` when the records do not yield the duplicates that the ledger has counted.
    """
    config, readable, last = records.config, past.readable(), past.batches[-1]
    dedup = config.dedup_of(config.source)
    if dedup is None:
        batches = _of_this_definition(config, readable)
        rows = computed(_rows_of(records, batches, report)) if batches else records.rows(())
        return Accepted(rows, whole=len(batches) == len(past.batches))
    all_keys_expired = now_ms - last.batch_time_ms >= milliseconds(dedup.time_window)
    if not readable and all_keys_expired:
        return Accepted(records.rows(()), whole=False)
    if not readable:
        why = f"Kafka has removed records that batch {last.batch_id} has read"
        raise CannotRebuild(config.pipeline_id, why)
    return _accepted(records, past, readable, dedup, report)


def _accepted(
    records: Records,
    past: LostCheckpoint,
    readable: Sequence[BatchEntry],
    dedup: DedupConfig,
    report: Callable[[str], None],
) -> Accepted:
    """Replay growing numbers of the last batches until the duplicates agree with the ledger's counts.

    Raises `CannotRebuild` where they differ even with all `readable` batches. past: all batches.
    """
    for batches in _growing_spans(readable, milliseconds(dedup.time_window)):
        rows = _rows_of(records, batches, report).persist()
        accepted = computed(first_of_windows(rows, dedup))
        differences = _compare_duplicates(rows, accepted, _duplicates_of_last_window(batches, dedup))
        rows.unpersist()
        if not differences:
            return Accepted(accepted, whole=len(batches) == len(past.batches))
    batch_id, (replayed, recorded) = max(differences.items())
    raise CannotRebuild(
        records.config.pipeline_id,
        f"reading its records again gives {replayed:,} duplicates in batch {batch_id}, but the ledger has "
        f"{recorded:,}: " + _why_different(past, readable),
    )


def _of_this_definition(config: PipelineConfig, batches: Sequence[BatchEntry]) -> Sequence[BatchEntry]:
    """Return the last batches that all ran with the current definition."""
    digests = config.digests
    indexes_of_others = [index for index, batch in enumerate(batches) if batch.definition not in digests]
    return batches[indexes_of_others[-1] + 1 :] if indexes_of_others else batches


def _rows_of(records: Records, batches: Sequence[BatchEntry], report: Callable[[str], None]) -> DataFrame:
    """Return `Records.rows` of the batches; raises `CannotRebuild` if one ran with another definition."""
    digests = records.config.digests
    # Batches of another definition.
    others = [batch.batch_id for batch in batches if batch.definition not in digests]
    if others:
        raise CannotRebuild(
            records.config.pipeline_id,
            f"batch {others[-1]} ran with another definition, so the current one does not determine its keys",
            "undo the edit, rebuild the state, then edit again",
        )
    report(f"reading the records of batches {batches[0].batch_id} to {batches[-1].batch_id} again ...")
    return records.rows(batch_range for batch in batches for batch_range in batch.ranges)


def _growing_spans(batches: Sequence[BatchEntry], window_ms: int) -> list[Sequence[BatchEntry]]:
    """Return the last batches over 2, 4, 8 ... windows; the last entry has all batches."""
    spans: list[Sequence[BatchEntry]] = []
    span = _WINDOWS * window_ms
    while not spans or len(spans[-1]) < len(batches):
        spans.append([batch for batch in batches if batch.batch_time_ms > batches[-1].batch_time_ms - span])
        span *= 2
    return spans


def _duplicates_of_last_window(batches: Sequence[BatchEntry], dedup: DedupConfig) -> dict[int, int]:
    """Return the ledger's number of duplicates for each batch in the last window: batch -> number."""
    since = batches[-1].batch_time_ms - milliseconds(dedup.time_window)
    return {batch.batch_id: batch.duplicates for batch in batches if batch.batch_time_ms > since}


def _compare_duplicates(
    rows: DataFrame, accepted: DataFrame, recorded: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Return the batches whose number of duplicates differs from the ledger's: batch -> (replayed, recorded)."""
    all_counts, accepted_counts = _count_by_batch(rows), _count_by_batch(accepted)
    replayed = {batch_id: all_counts.get(batch_id, 0) - accepted_counts.get(batch_id, 0) for batch_id in recorded}
    return {
        batch_id: (replayed[batch_id], number) for batch_id, number in recorded.items() if replayed[batch_id] != number
    }


def _count_by_batch(rows: DataFrame) -> dict[int, int]:
    """Count the rows of each batch: batch -> number."""
    return {row["batch_id"]: row["count"] for row in rows.groupBy("batch_id").count().collect()}


def _why_different(past: LostCheckpoint, readable: Sequence[BatchEntry]) -> str:
    """Return the most likely reason why the duplicates differ, for the error message."""
    if len(readable) < len(past.batches):
        return f"Kafka has no records from before batch {readable[0].batch_id}, which later records depend on"
    return "Kafka's records differ from those that were read"
