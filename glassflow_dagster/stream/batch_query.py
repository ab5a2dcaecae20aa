"""Streaming queries in Scala (scala/inline/BatchQuery.scala), whose micro-batches run as a Spark job or inline.

Spark plans every batch of a query anew, launches jobs for it and sends its rows to Python workers and back: some 0.3
seconds of one core, however few records there are. A batch of few records therefore runs inline: by a physical plan
that was prepared once, in one thread of the driver's JVM, on the same state stores as a job (scala/inline).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.stream.inline_or_job import INLINE_BYTES, InlineLimit
from glassflow_dagster.stream.spark.session import java


class BatchStages(Protocol):
    """The stages of a query, applied to the records of its current batch."""

    @property
    def spark(self) -> SparkSession:
        """The session."""

    def may_inline(self, records: int, record_bytes: int) -> bool:
        """Return whether a batch of so many records may run inline. record_bytes: their mean size."""

    def job(self, batch_id: int, time_ms: int) -> DataFrame:
        """Return the result for the batch, to be run as a job. time_ms: the batch's time."""

    def inline(self, batch_id: int, time_ms: int) -> list[pa.RecordBatch] | None:
        """Run the stages on the batch in this driver; return the rows, sorted by offset, topic and partition.

        None where they need a job (scala/inline/InlineOrJob.scala). Columns as in `job`.
        """


@dataclass(frozen=True)
class PlannedBatch:
    """The `BatchStages` of a batch that Spark has planned with all of its stages."""

    batch: DataFrame

    @property
    def spark(self) -> SparkSession:
        """The session of the batch."""
        return self.batch.sparkSession

    def may_inline(self, _records: int, _record_bytes: int) -> bool:
        """Return that it may not."""
        return False

    def job(self, _batch_id: int, _time_ms: int) -> DataFrame:
        """Return the batch."""
        return self.batch

    def inline(self, _batch_id: int, _time_ms: int) -> list[pa.RecordBatch] | None:
        """Return that it needs a job."""
        return None


class BatchQuery:
    """A streaming query on one source, and the `BatchStages` of its current batch.

    The stages must not use a watermark: the query has none.
    """

    def __init__(self, records: DataFrame, events: DataFrame, name: str, checkpoint: str, scratch: Path) -> None:
        """Prepare a query.

        records: its source, a stream.
        events: the result of the stages, on that stream.
        name: the query's.
        checkpoint: its root, as `Checkpoint.spark_location`.
        scratch: a folder for what need not outlive the process.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        self._rows = scratch / "inline.arrow"
        self.spark = events.sparkSession
        self._limit = InlineLimit.of(self.spark)
        query = java(self.spark).org.apache.spark.sql.inline.BatchQuery
        self._query = query(records._jdf, events._jdf, name, checkpoint, self._limit.records, INLINE_BYTES)

    def start(self, run: Callable[[int], None], *, until_caught_up: bool) -> StreamingQuery:
        """Start the query, which calls `run` with the id of each batch, and commits the batch when that returns.

        until_caught_up: end with the records that there are now.
        """
        ensure_callback_server_started(self.spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        return StreamingQuery(self._query.start(_BatchFunction(run), until_caught_up))

    def may_inline(self, records: int, record_bytes: int) -> bool:
        """See `BatchStages`."""
        return self._limit.allows(records, record_bytes)

    def job(self, batch_id: int, time_ms: int) -> DataFrame:
        """See `BatchStages`."""
        return DataFrame(self._query.job(batch_id, time_ms), self.spark)

    def inline(self, batch_id: int, time_ms: int) -> list[pa.RecordBatch] | None:
        """See `BatchStages`."""
        if not self._query.inline(batch_id, time_ms, str(self._rows)):
            return None
        table: pa.Table = pa.ipc.open_stream(self._rows.read_bytes()).read_all()
        return list(table.to_batches())

    def state_bytes(self) -> int:
        """Return the size of the state stores in bytes: their memory, and their files on disk."""
        return int(self._query.stateBytes())


class _BatchFunction:
    """The function that the JVM calls for each batch."""

    def __init__(self, run: Callable[[int], None]) -> None:
        self._run = run

    def run(self, batch_id: int) -> None:
        """Call the function; the JVM gets its exceptions."""
        self._run(batch_id)

    class Java:
        """The interface that py4j implements with this class."""

        implements = ("glassflow.BatchFunction",)
