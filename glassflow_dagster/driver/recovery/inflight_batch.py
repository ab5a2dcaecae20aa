"""Finds the rows of the in-flight batch, the batch that was being written when the checkpoint was lost.

The ledger has no entry for this batch, so its rows in the table are recognized by their values: the rows that records
after the ledger's last batch would yield, as far as the table has more of them than the earlier batches have written.
When the table's row count tells how many rows the in-flight batch has written, the two numbers must agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from glassflow_dagster.checks.exact.canonical import hashed
from glassflow_dagster.checks.exact.compare_keys import Compared
from glassflow_dagster.checks.exact.expected import first_of_windows, single_rows
from glassflow_dagster.checks.exact.table_rows import actual_rows
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.driver.recovery.cannot_rebuild import CannotRebuild
from glassflow_dagster.driver.recovery.dedup_keys import Accepted
from glassflow_dagster.driver.recovery.records import LostCheckpoint, Records, computed
from glassflow_dagster.stores.bookkeeping.ledger import BatchRange
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals
from glassflow_dagster.stream.stages.columns import position
from glassflow_dagster.stream.stages.source import MAX_BATCH_RECORDS

# The position of an event: the index of the topic, partition, offset, and of an OTLP source the item.
Position = tuple[int, ...]


def following_ranges(past: LostCheckpoint, batch_time_ms: int) -> list[BatchRange]:
    """Return the largest offset ranges that the batch after the ledger's last batch can have read.

    Each begins where the last batch ended (in a new partition, at the first available record), and ends with the
    partition, or after the most records that a batch has.
    """
    last = past.batches[-1]
    ends = {(r.topic, r.partition): r.until for r in last.ranges}
    ranges = []
    for topic, partitions in past.offsets.items():
        for partition, offsets in partitions.items():
            first = ends.get((topic, partition), offsets.low)
            until = max(first, min(offsets.high, first + MAX_BATCH_RECORDS))
            ranges.append(BatchRange(last.batch_id + 1, batch_time_ms, topic, partition, first, until))
    return ranges


@dataclass
class InFlightBatch:
    """Searches tables for the rows of the in-flight batch.

    ranges: the offsets that it may have read.
    accepted: the rows of the batches before, recomputed from Kafka's records; `whole` unless Kafka has lost some.
    """

    records: Records
    ranges: Sequence[BatchRange]
    accepted: Accepted

    def written_to(self, compared: Compared, unknown: int | None) -> list[Position]:
        """Return the positions of the events whose rows are in a table.

        compared: the table, and its columns whose values are compared.
        unknown: the number of the table's rows that no batch in the ledger has written; None where the row count does
            not tell it.
        Raises `CannotRebuild` when the records cannot be identified.
        """
        if unknown == 0:
            return []
        config = self.records.config
        # Without deduplication, equal rows of an earlier batch whose records are lost would be taken for this batch's.
        has_dedup = config.dedup_of(config.source) is not None
        may_be_of_earlier_batch = unknown is None and not has_dedup and not self.accepted.whole
        if not compared.values or may_be_of_earlier_batch:
            raise _cannot_tell(
                config, "the table may have some of its rows, and their values alone do not identify them"
            )
        of_earlier_batches = self.records.without_refused(self.accepted.rows)
        written = _written_candidates(self.records.spark, self._candidates, of_earlier_batches, compared)
        if unknown is not None and len(written) != unknown:
            raise _cannot_tell(
                config,
                f"{compared.name} has {unknown:,} rows that no batch in the ledger has written, and by their values "
                f"{len(written):,} of them can belong to that batch",
            )
        if written and config.sink.shared_table:
            raise _cannot_tell(
                config,
                f"{compared.name} has rows with its values, which other pipelines may have written (sink.shared_table)",
            )
        return written

    @cached_property
    def _candidates(self) -> DataFrame:
        """The single rows that the batch may have written, to any table."""
        config = self.records.config
        rows, dedup = self.records.rows(self.ranges), config.dedup_of(config.source)
        if dedup is not None:
            rows = _without_duplicates(rows, self.accepted, dedup, self.ranges)
        return computed(single_rows(rows))


def unknown_rows(compared: Compared, totals: LedgerTotals) -> int | None:
    """Count the rows of a table that no batch in the ledger has written.

    None when the row count does not tell: rows may be merged, expired or deleted, or others write to the table; or its
    rows before the first batch are not known.
    """
    if compared.table.is_plain and not compared.table.rows:
        return 0
    table, of_ledger = compared.table, totals.by_table.of(compared.name, own=compared.config.sink.is_own)
    if of_ledger.before is None or not table.is_plain or compared.config.other_writers:
        return None
    surplus = table.rows - of_ledger.before - of_ledger.written
    return surplus if surplus >= 0 else None


def _without_duplicates(
    candidates: DataFrame, accepted: Accepted, dedup: DedupConfig, ranges: Sequence[BatchRange]
) -> DataFrame:
    """Drop the rows that deduplication would drop: those of keys in the state, and repetitions among themselves.

    ranges: the offsets that the in-flight batch may have read, with its time, at which a key's window must still last.
    Columns in and out: those of `Records.rows`.
    """
    now_ms = max(r.batch_time_ms for r in ranges)
    known = accepted.known(dedup, now_ms).select(F.col("key").alias("dedup_key"))
    return first_of_windows(candidates.join(known, "dedup_key", "left_anti"), dedup)


def _written_candidates(
    spark: SparkSession, candidates: DataFrame, accepted: DataFrame, compared: Compared
) -> list[Position]:
    """Return the positions of the candidates whose rows are in a table.

    candidates, accepted: single rows, those of the in-flight batch and of earlier ones, without those that the server
    refused. Of candidates with equal values (row_hash), these are the first ones, as many as the table has such rows
    beyond those that earlier batches have written.
    """
    of_table = F.col("table_index") == compared.index
    of_event = position(candidates.columns)
    candidates = candidates.where(of_table).select(*of_event, "row_hash")
    values = candidates.select("row_hash").distinct()
    _, row_hash_sql = hashed(compared.values)
    in_table = (
        # The hash of a key is not needed here.
        actual_rows(spark, compared.config, key=row_hash_sql, row=row_hash_sql)
        .select("row_hash")
        .join(values, "row_hash", "left_semi")
    )
    from_earlier_batches = accepted.where(of_table).select("row_hash").join(values, "row_hash", "left_semi")
    counts = _counted(in_table, 1).unionAll(_counted(from_earlier_batches, -1))
    surplus = counts.groupBy("row_hash").agg(F.sum("rows").alias("surplus"))
    nth = F.row_number().over(Window.partitionBy("row_hash").orderBy(*of_event))
    written = candidates.withColumn("nth", nth).join(surplus, "row_hash").where("nth <= surplus").select(*of_event)
    return sorted(tuple(row) for row in written.collect())


def _counted(rows: DataFrame, sign: int) -> DataFrame:
    """Count the rows of each value, times `sign`. Columns out: row_hash, rows LONG."""
    return rows.groupBy("row_hash").agg((F.count("*") * F.lit(sign)).alias("rows"))


def _cannot_tell(config: PipelineConfig, why: str) -> CannotRebuild:
    return CannotRebuild(config.pipeline_id, f"a batch was in flight when the checkpoint was lost, and {why}")
