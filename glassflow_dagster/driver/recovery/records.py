"""The rows that a pipeline's records yield, and the batches of a lost checkpoint."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession

from glassflow_dagster.checks.exact.expected import rows_of_batches, single_rows, without_refused
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.dead_letter_table import RefusedEvent, UndecodedRecord
from glassflow_dagster.stores.bookkeeping.ledger import BatchEntry, BatchRange
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.kafka.topics import Offsets

# The columns of `Records.rows`, but for item INT of an OTLP source. With `sink.match: all` the last two of the rows are
# in of_tables (`single_rows`); here there are no rows.
ROWS = (
    "topic STRING, topic_rank INT, partition INT, offset LONG, batch_id LONG, batch_ms LONG, exempt BOOLEAN, "
    "dedup_key BINARY, table_index INT, row_hash STRING"
)


@dataclass(frozen=True)
class Records:
    """Reads the records of a pipeline as rows.

    row_hash: of each table, the column of that name, by its `row_column`.
    undecoded: records that have no row, although their schema may be known by now (`read_undecoded`).
    refused: events whose rows the server has rejected (`read_refused_by_server`).
    """

    spark: SparkSession
    config: PipelineConfig
    tables: Sequence[Table]
    checkpoint_id: str
    row_hash: Sequence[Mapping[str, Column]]
    undecoded: Sequence[UndecodedRecord] = ()
    refused: Sequence[RefusedEvent] = ()

    def rows(self, ranges: Iterable[BatchRange]) -> DataFrame:
        """Return the rows of the ranges before deduplication. Columns out: `ROWS`."""
        not_empty = [r for r in ranges if r.until > r.first]
        if not not_empty:
            return self.spark.createDataFrame([], f"{ROWS}, item INT" if self.config.source.signal else ROWS)
        return rows_of_batches(
            self.spark, self.config, self.tables, not_empty, self.checkpoint_id, self.undecoded, self.row_hash
        )

    def without_refused(self, rows: DataFrame) -> DataFrame:
        """Return the single rows that the server has not rejected: a replay writes those under other positions."""
        return without_refused(single_rows(rows), self.refused, self.config)


def computed(rows: DataFrame) -> DataFrame:
    """Return the rows, computed and without the plan that has led to them. Columns out: the same.

    Rows that are only persisted keep their plan, and Spark compares it with each part of every plan that follows: with
    three tables (`sink.match: all`) that took two minutes for 40 records. Rows computed by an executor that is lost are
    lost: then the rebuild fails, and can be repeated.
    """
    return rows.localCheckpoint()


@dataclass(frozen=True)
class LostCheckpoint:
    """The batches of a lost checkpoint (at least one), and Kafka's available offsets: topic -> partition -> offsets."""

    batches: Sequence[BatchEntry]
    offsets: Mapping[str, Mapping[int, Offsets]]

    def readable(self) -> Sequence[BatchEntry]:
        """Return the last batches, as far back as Kafka still has all records that they read."""
        first = len(self.batches)
        while first and self._is_available(self.batches[first - 1]):
            first -= 1
        return self.batches[first:]

    def _is_available(self, batch: BatchEntry) -> bool:
        """Return whether Kafka still has the records of a batch; retention removes them from the beginning."""
        return all(self._low(r) <= r.first for r in batch.ranges if r.until > r.first)

    def _low(self, batch_range: BatchRange) -> int:
        """Return the first available offset of a range's partition; the range's end if the partition is gone."""
        offsets = self.offsets.get(batch_range.topic, {}).get(batch_range.partition)
        return offsets.low if offsets else batch_range.until
