"""The clock source in Scala (scala/spark/ClockSource.scala): triggers batches while the topics are silent.

It is a stream source without records; on the event clock its rows also carry the watermark into Spark.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from glassflow_dagster.stream.spark.session import java


class ClockSource:
    """The clock source of one query. What is set here takes effect with the next batch.

    name: a name that no other query of the process has.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self._name = spark, name
        self._clock = java(spark).glassflow.ClockSource.of(name)

    def read(self) -> DataFrame:
        """Return the stream. Columns out: clock TIMESTAMP, the watermark: one row if a batch advances it, else none."""
        return self._spark.readStream.format("glassflow.ClockSource").option("name", self._name).load()

    def move_to(self, milliseconds: int) -> None:
        """Advance the watermark to a time in milliseconds since 1970; an earlier one than before has no effect."""
        self._clock.moveTo(milliseconds)

    def trigger_every(self, milliseconds: int) -> None:
        """Trigger a batch at the latest this long after the last one; with 0 only records and `move_to` trigger one."""
        self._clock.triggerEvery(milliseconds)


def without_rows(clock_rows: DataFrame, schema: StructType, columns: Sequence[str]) -> DataFrame:
    """Return the clock stream without its rows, with the columns of another stream, for a union with that.

    The union makes the clock source a source of the query: its batches and its watermark become the query's.
    """
    # A clock is never NULL, but Spark does not know that; with lit(False) it would remove the source from the plan.
    no_rows = clock_rows.where(F.col("clock").isNull())
    return no_rows.select(*(F.lit(None).cast(schema[name].dataType).alias(name) for name in columns))
