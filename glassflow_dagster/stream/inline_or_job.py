"""Decides whether a micro-batch runs inline, in the driver, or as a Spark job.

The driver decides here, by number and size of the records, when it plans a batch; the plan keeps the answer, so that a
repeated batch cuts the same blocks. The JVM may still need a job, which it decides in scala/inline/InlineOrJob.scala.
"""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.spark.session import runs_locally

# With more records a job is as fast, as it uses all cores; up to this many, one core is enough.
INLINE_RECORDS = 10_000
# The Spark setting with another number; with 0 every batch is a job.
INLINE_RECORDS_SETTING = "spark.glassflow.inlineRecords"
# The records of an inline batch are in memory several times: as rows, and as Arrow in the JVM and in Python.
INLINE_BYTES = 8 * 1024 * 1024
# The first batch of a backlog runs inline: its rows are there while Java compiles and Python's workers start, for which
# a batch of the full size would wait.
FIRST_RECORDS = 2_000


@dataclass(frozen=True)
class InlineLimit:
    """The most records of an inline batch in a session. is_local: on a cluster no batch may run inline."""

    records: int
    is_local: bool

    @classmethod
    def of(cls, spark: SparkSession) -> "InlineLimit":
        """Return the limit that a session's settings say."""
        records = int(str(spark.conf.get(INLINE_RECORDS_SETTING, str(INLINE_RECORDS))))
        # Elsewhere the state is in the memory of the executors.
        return cls(records, runs_locally(spark))

    def allows(self, records: int, record_bytes: int) -> bool:
        """Return whether a batch of so many records may run inline. record_bytes: their mean size."""
        return self.is_local and 0 < self.records >= records and records * record_bytes <= INLINE_BYTES


def uses_watermark(config: PipelineConfig) -> bool:
    """Return whether the stages of a definition use Spark's watermark: a join does, and an event clock.

    Then Spark plans each batch with all of its stages, as a job.
    """
    dedup = config.dedup_of(config.source)
    return config.join is not None or (dedup is not None and dedup.clock != "processing")


def begins_inline(config: PipelineConfig, checkpoint: Checkpoint, spark: SparkSession) -> bool:
    """Return whether the first batch runs inline if it has few records."""
    pending = checkpoint.pending_plan()
    return not uses_watermark(config) and InlineLimit.of(spark).allows(0, 0) and (pending is None or pending.inline)
