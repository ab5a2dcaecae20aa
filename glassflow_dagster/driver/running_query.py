"""A streaming query that was started: how far it is, how it ends, and what it failed of."""

import math
import time
from dataclasses import dataclass
from typing import Any

from clickhouse_connect.driver.client import Client
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.failures import query_failure
from glassflow_dagster.driver.open_checkpoint import OpenCheckpoint
from glassflow_dagster.driver.progress import query_progress
from glassflow_dagster.streaming.delivery.batch_writer import BatchWriter, WriterProgress
from glassflow_dagster.streaming.delivery.totals import Totals
from glassflow_dagster.streaming.stages.batch_pacer import BatchPacer

# Between a batch's last write and Spark's commit lie milliseconds; past this the query is ended all the same, and
# the batch is replayed from its plan at the next start.
_COMMIT_SECONDS = 30.0


@dataclass(frozen=True)
class RunningQuery:
    """A query that was started. before: the ledger's totals of all batches before those of this query."""

    config: PipelineConfig
    client: Client
    opened: OpenCheckpoint
    before: Totals
    writer: BatchWriter
    pacer: BatchPacer | None
    query: StreamingQuery

    def wait(self) -> bool:
        """Wait a second for the query's end; return whether it has ended. `raise_failure` tells how."""
        try:
            return bool(self.query.awaitTermination(1))
        except StreamingQueryException:
            return True

    def written(self) -> WriterProgress:
        """Return how far the batches are; asks nothing of Spark, so that any thread may call it at any time."""
        return self.writer.progress()

    def progress(self) -> dict[str, Any]:
        """Return how far the query is, as fields of a heartbeat."""
        topics = [source.topic for source in self.config.inputs]
        return query_progress(self.query, self.written(), self.before, topics)

    def last_duration(self) -> tuple[int, float] | None:
        """Return the last batch that Spark has closed, and how many seconds it took; None before the first."""
        last = self.query.lastProgress
        return None if last is None else (last.batchId, last.batchDuration / 1000)

    def wait_until_committed(self, batch_id: int, seconds: float = math.inf) -> None:
        """Return when Spark has closed a batch, or the query has ended before, or so many seconds have passed."""
        deadline = time.monotonic() + seconds
        committed = self.opened.checkpoint.is_committed
        while self.query.isActive and not committed(batch_id) and time.monotonic() < deadline:
            self.wait()

    def end(self) -> None:
        """End the query between two batches; raises `GlassflowError` where it has failed."""
        last = self.writer.stop()
        if last:
            self.wait_until_committed(last.batch_id, _COMMIT_SECONDS)
        self.query.stop()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise `GlassflowError` where the query has failed."""
        error = self.query.exception()
        if error is not None and not self.writer.has_refused_batch:
            checkpoint, epoch = self.opened.checkpoint, self.opened.epoch
            raise query_failure(error, self.config, checkpoint, epoch, self.client) from error
