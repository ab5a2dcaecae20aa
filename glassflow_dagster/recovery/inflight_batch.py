"""The batch that was under way when a checkpoint was lost: which of its rows are in the table, nobody has written down.

They are told by their values: rows that records behind the ledger's last batch would make, and that the table has more
of than the batches before can have put there. Where the table's count tells how many there are, they must be as many.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from glassflow_dagster.bookkeeping.ledger import BatchRange
from glassflow_dagster.bookkeeping.totals import LedgerTotals
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.recovery.dedup_keys import Accepted
from glassflow_dagster.recovery.errors import CannotRebuild
from glassflow_dagster.recovery.records import LostCheckpoint, Records
from glassflow_dagster.streaming.stages.record_counter import SingleTopicCounter
from glassflow_dagster.streaming.stages.source import MAX_BATCH_RECORDS
from glassflow_dagster.verification.exact.canonical import hashed
from glassflow_dagster.verification.exact.compare_keys import Compared
from glassflow_dagster.verification.exact.expected import first_of_windows
from glassflow_dagster.verification.exact.table_rows import actual_rows

_PLACE = SingleTopicCounter.position_columns


def following_ranges(past: LostCheckpoint, batch_time_ms: int) -> list[BatchRange]:
    """Give what the batch behind the last one can have read at most."""
    last = past.batches[-1]
    begun = {(found.topic, found.partition): found.until for found in last.ranges}
    ranges = []
    for topic, partitions in past.offsets.items():
        for partition, there in partitions.items():
            first = begun.get((topic, partition), there.low)
            until = max(first, min(there.high, first + MAX_BATCH_RECORDS))
            ranges.append(BatchRange(last.batch_id + 1, batch_time_ms, topic, partition, first, until))
    return ranges


def records_there(
    records: Records, ranges: Sequence[BatchRange], accepted: Accepted, compared: Compared, unknown: int | None
) -> list[tuple[int, int, int]]:
    """Find the records of the ranges whose rows are in the table: topic's rank, partition, offset.

    unknown: how many rows no batch has put into the table, as `unknown_rows` counts them.
    Raises `CannotRebuild` when it cannot be told which they are.
    """
    if unknown == 0:
        return []
    config = records.config
    dedup = config.dedup_of(config.source)
    if not compared.values or (unknown is None and dedup is None and not accepted.whole):
        raise _cannot_tell(config, "rows of it may be there, and their values alone do not tell which")
    coming = records.rows(ranges)
    if dedup is not None:
        coming = _not_known(coming, accepted, dedup, ranges)
    found = _surplus(records, coming, accepted, compared)
    if unknown is not None and len(found) != unknown:
        raise _cannot_tell(
            config,
            f"the table has {unknown:,} rows that no batch in the ledger has written, and by their values "
            f"{len(found):,} of them can be that batch's",
        )
    return found


def unknown_rows(config: PipelineConfig, table: Table, totals: LedgerTotals) -> int | None:
    """Count the rows that no batch has put into the table; None where the table's count does not tell."""
    more = table.rows - totals.rows_before - totals.outcomes.written
    return more if table.is_plain and more >= 0 and not config.checks.other_writers else None


def _not_known(coming: DataFrame, accepted: Accepted, dedup: DedupConfig, ranges: Sequence[BatchRange]) -> DataFrame:
    now_ms = max(found.batch_time_ms for found in ranges)
    known = accepted.known(dedup, now_ms).select(F.col("key").alias("dedup_key"))
    return first_of_windows(coming.join(known, "dedup_key", "left_anti"), dedup)


def _surplus(records: Records, coming: DataFrame, accepted: Accepted, compared: Compared) -> list[tuple[int, int, int]]:
    """Give the first of the coming rows of each value, as many as the table has more than were accepted before."""
    coming = coming.select(*_PLACE, "row_hash").persist()
    values = coming.select("row_hash").distinct()
    _, digest = hashed(compared.values)
    there = (
        actual_rows(records.spark, records.config, digest, digest)
        .select("row_hash")
        .join(values, "row_hash", "left_semi")
    )
    before = accepted.rows.select("row_hash").join(values, "row_hash", "left_semi")
    more = _counted(there, 1).unionAll(_counted(before, -1)).groupBy("row_hash").agg(F.sum("rows").alias("more"))
    nth = F.row_number().over(Window.partitionBy("row_hash").orderBy(*_PLACE))
    found = coming.withColumn("nth", nth).join(more, "row_hash").where("nth <= more").select(*_PLACE).collect()
    coming.unpersist()
    return sorted((row[0], row[1], row[2]) for row in found)


def _counted(rows: DataFrame, sign: int) -> DataFrame:
    return rows.groupBy("row_hash").agg((F.count("*") * F.lit(sign)).alias("rows"))


def _cannot_tell(config: PipelineConfig, why: str) -> CannotRebuild:
    return CannotRebuild(config.pipeline_id, f"a batch was under way when the checkpoint was lost, and {why}")
