"""What records make, batch by batch, and what a lost checkpoint had read of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession

from glassflow_dagster.bookkeeping.ledger import BatchEntry, BatchRange
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.kafka.topics import Offsets
from glassflow_dagster.verification.exact.expected import rows_of_batches

# The columns of `Records.rows`.
ROWS = (
    "topic STRING, topic_rank INT, partition INT, offset LONG, batch_id LONG, batch_ms LONG, exempt BOOLEAN, "
    "dedup_key BINARY, row_hash STRING"
)


@dataclass(frozen=True)
class Records:
    """The records of a pipeline; `row_hash` is made of `row`, a STRUCT of the target's columns."""

    spark: SparkSession
    config: PipelineConfig
    table: Table
    checkpoint_id: str
    row_hash: Column

    def rows(self, ranges: Iterable[BatchRange]) -> DataFrame:
        """Give the rows that come to deduplication. Columns out: those of `rows_of_batches`, and row_hash STRING."""
        read = [found for found in ranges if found.until > found.first]
        if not read:
            return self.spark.createDataFrame([], ROWS)
        return rows_of_batches(self.spark, self.config, self.table, read, self.checkpoint_id, [self.row_hash])


@dataclass(frozen=True)
class LostCheckpoint:
    """The batches of a lost checkpoint, one at least, and what Kafka still has: topic -> partition -> offsets."""

    batches: Sequence[BatchEntry]
    offsets: Mapping[str, Mapping[int, Offsets]]

    def readable(self) -> Sequence[BatchEntry]:
        """Give the last batches, as far back as Kafka has all that they read."""
        first = len(self.batches)
        while first and self._is_there(self.batches[first - 1]):
            first -= 1
        return self.batches[first:]

    def _is_there(self, batch: BatchEntry) -> bool:
        return all(self._low(found) <= found.first for found in batch.ranges if found.until > found.first)

    def _low(self, found: BatchRange) -> int:
        there = self.offsets.get(found.topic, {}).get(found.partition)
        return there.low if there else found.until
