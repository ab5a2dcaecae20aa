"""Which keys a lost state knew: the records that the last batches read are deduplicated once more.

What was accepted before the first batch that is looked at is not known here. Keys that come again and again may hang on
it, each acceptance on the one before. So every batch of the last window is held against the ledger's count of
duplicates, and where one differs, more batches are looked at, until all that Kafka has are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.bookkeeping.ledger import BatchEntry
from glassflow_dagster.config.model.durations import milliseconds
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.recovery.errors import CannotRebuild
from glassflow_dagster.recovery.records import LostCheckpoint, Records
from glassflow_dagster.verification.exact.expected import first_of_windows

# So many windows are looked at first: whatever came a window or more after the first batch is judged as it was.
_WINDOWS = 2


@dataclass(frozen=True)
class Accepted:
    """The rows that passed deduplication in the batches that were looked at; `whole` when no batch is left out.

    rows: columns as in `Records.rows`; they are persisted.
    """

    rows: DataFrame
    whole: bool

    def known(self, dedup: DedupConfig, now_ms: int) -> DataFrame:
        """Give the keys that are known at a batch time. Columns out: key BINARY, until LONG, as in `put_known`."""
        until = (F.col("batch_ms") + F.lit(milliseconds(dedup.time_window))).alias("until")
        keys = self.rows.where(~F.col("exempt")).select(F.col("dedup_key").alias("key"), until)
        return keys.where(F.col("until") > F.lit(now_ms)).groupBy("key").agg(F.max("until").alias("until"))


def replay_dedup(records: Records, past: LostCheckpoint, now_ms: int, report: Callable[[str], None]) -> Accepted:
    """Deduplicate the last batches once more; without deduplication all that Kafka has and this definition has made.

    Raises `CannotRebuild` when the records do not make the duplicates that the ledger has counted.
    """
    config, readable, last = records.config, past.readable(), past.batches[-1]
    dedup = config.dedup_of(config.source)
    if dedup is None:
        made = _made_by(config, readable)
        rows = (_rows_of(records, made, report) if made else records.rows(())).persist()
        return Accepted(rows, whole=len(made) == len(past.batches))
    if not readable and now_ms - last.batch_time_ms >= milliseconds(dedup.time_window):
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
    for batches in _ever_more(readable, milliseconds(dedup.time_window)):
        rows = _rows_of(records, batches, report).persist()
        passed = first_of_windows(rows, dedup).persist()
        differing = _differing(rows, passed, _of_last_window(batches, dedup))
        rows.unpersist()
        if not differing:
            return Accepted(passed, whole=len(batches) == len(past.batches))
        passed.unpersist()
    batch_id, (found, told) = max(differing.items())
    raise CannotRebuild(
        records.config.pipeline_id,
        f"its records make {found:,} duplicates in batch {batch_id}, but the ledger has {told:,}: "
        + _why_other(past, readable),
    )


def _made_by(config: PipelineConfig, batches: Sequence[BatchEntry]) -> Sequence[BatchEntry]:
    """Give the last batches, back to the last edit of the definition."""
    others = [place for place, batch in enumerate(batches) if batch.definition != config.digest]
    return batches[others[-1] + 1 :] if others else batches


def _rows_of(records: Records, batches: Sequence[BatchEntry], report: Callable[[str], None]) -> DataFrame:
    others = [batch.batch_id for batch in batches if batch.definition != records.config.digest]
    if others:
        raise CannotRebuild(
            records.config.pipeline_id,
            f"batch {others[-1]} was made by another definition, so today's does not tell which keys it knew",
            "take the edit back, make the state anew, then edit again",
        )
    report(f"reading again what batches {batches[0].batch_id} to {batches[-1].batch_id} have read ...")
    return records.rows(found for batch in batches for found in batch.ranges)


def _ever_more(batches: Sequence[BatchEntry], window_ms: int) -> list[Sequence[BatchEntry]]:
    """Give the last batches over ever longer times, at the end all of them."""
    spans: list[Sequence[BatchEntry]] = []
    span = _WINDOWS * window_ms
    while not spans or len(spans[-1]) < len(batches):
        spans.append([batch for batch in batches if batch.batch_time_ms > batches[-1].batch_time_ms - span])
        span *= 2
    return spans


def _of_last_window(batches: Sequence[BatchEntry], dedup: DedupConfig) -> dict[int, int]:
    """Give the duplicates that the ledger has of each batch of the last window."""
    since = batches[-1].batch_time_ms - milliseconds(dedup.time_window)
    return {batch.batch_id: batch.duplicates for batch in batches if batch.batch_time_ms > since}


def _differing(rows: DataFrame, passed: DataFrame, told: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Give the batches whose duplicates are not as many as the ledger has: batch -> (found, told)."""
    came, went_on = _by_batch(rows), _by_batch(passed)
    found = {batch_id: came.get(batch_id, 0) - went_on.get(batch_id, 0) for batch_id in told}
    return {batch_id: (found[batch_id], number) for batch_id, number in told.items() if found[batch_id] != number}


def _by_batch(rows: DataFrame) -> dict[int, int]:
    return {row["batch_id"]: row["count"] for row in rows.groupBy("batch_id").count().collect()}


def _why_other(past: LostCheckpoint, readable: Sequence[BatchEntry]) -> str:
    if len(readable) < len(past.batches):
        return f"Kafka has no records from before batch {readable[0].batch_id}, which decided about later ones"
    return "Kafka's records are other ones than those that were read"
