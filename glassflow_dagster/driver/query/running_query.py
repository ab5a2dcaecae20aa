"""A streaming query that was started: its progress, its end, and its failure."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clickhouse_connect.driver.client import Client
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.query.progress import query_progress
from glassflow_dagster.driver.query.query_failure import query_failure
from glassflow_dagster.driver.start.open_checkpoint import OpenCheckpoint
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stream.batch_query import BatchQuery
from glassflow_dagster.stream.delivery.batch_writer import BatchWriter, WriterProgress
from glassflow_dagster.stream.stages.batch_pacer import BatchPacer

# Spark commits a batch milliseconds after its last write. After this many seconds the query is stopped anyway, and
# the batch is replayed from its plan at the next start.
_COMMIT_SECONDS = 30.0


@dataclass(frozen=True)
class BatchDuration:
    """How many seconds a batch took, in all and by Spark's phases of it (`addBatch`, `walCommit`, ...)."""

    batch_id: int
    seconds: float
    phases: Mapping[str, float]


@dataclass(frozen=True)
class RunningQuery:
    """A query that was started.

    before: the ledger's totals of all earlier batches.
    pacer: None unless it joins.
    stages: None where Spark's query has them.
    more_memory: returns how Spark's JVM gets some.
    """

    config: PipelineConfig
    client: Client
    opened: OpenCheckpoint
    before: Totals
    writer: BatchWriter
    pacer: BatchPacer | None
    query: StreamingQuery
    stages: BatchQuery | None
    more_memory: Callable[[], str]

    def wait(self) -> bool:
        """Wait a second for the query's end; return whether it has ended. `raise_failure` raises its failure."""
        try:
            return bool(self.query.awaitTermination(1))
        except StreamingQueryException:
            return True

    def written(self) -> WriterProgress:
        """Return the writer's progress; Spark is not called, so any thread may call this at any time."""
        return self.writer.progress()

    def progress(self) -> dict[str, Any]:
        """Return the query's progress as fields of a heartbeat."""
        state_bytes = self.stages.state_bytes() if self.stages else None
        return query_progress(self.query, self.written(), self.before, self.config.source_topics, state_bytes)

    def last_batch(self) -> BatchDuration | None:
        """Return what Spark says of the last batch that it has committed; None before the first."""
        last = self.query.lastProgress
        if last is None:
            return None
        return BatchDuration(
            last.batchId, last.batchDuration / 1000, {name: ms / 1000 for name, ms in last.durationMs.items()}
        )

    def wait_until_committed(self, batch_id: int, seconds: float = math.inf) -> None:
        """Wait until Spark has committed a batch, the query has ended, or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        committed = self.opened.checkpoint.is_committed
        while self.query.isActive and not committed(batch_id) and time.monotonic() < deadline:
            self.wait()

    def end(self) -> None:
        """Stop the query after the batch that is running now; raise `GlassflowError` where the query has failed."""
        last = self.writer.stop()
        if last:
            self.wait_until_committed(last.batch_id, _COMMIT_SECONDS)
        self.query.stop()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise `GlassflowError` where the query has failed; that the writer refused a further batch is no failure."""
        error = self.query.exception()
        if error is not None and not self.writer.has_refused_batch:
            raise query_failure(error, self.config, self.opened, self.client, self.more_memory) from error
