"""ClockSource: a stream of no records, by which batches go on while events wait and the topics are silent.

On the event clock they also carry the clock into Spark's watermark. scala/spark/ClockSource.scala is the source itself.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from glassflow_dagster.streaming.spark.session import java


class ClockSource:
    """The ticks of one query; what is set counts from the next batch on."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self._name = spark, name
        self._clock = java(spark).glassflow.ClockSource.of(name)

    def read(self) -> DataFrame:
        """Read the stream. Columns out: clock TIMESTAMP, how far the event clock has come when it has moved on."""
        return self._spark.readStream.format("glassflow.ClockSource").option("name", self._name).load()

    def move_to(self, milliseconds: int) -> None:
        """Move the event clock on, to milliseconds since 1970; it never goes back."""
        self._clock.moveTo(milliseconds)

    def tick_every(self, milliseconds: int) -> None:
        """Make a batch happen this long after the last one at the latest; 0 leaves it to the topics."""
        self._clock.tickEvery(milliseconds)


def without_rows(ticks: DataFrame, schema: StructType, columns: Sequence[str]) -> DataFrame:
    """Give the ticks the columns of another stream, and no rows, so that a union makes them part of it."""
    # Not a condition that Spark knows the answer of: it would leave the ticks out of the plan.
    nothing = ticks.where(F.col("clock").isNull())
    return nothing.select(*(F.lit(None).cast(schema[name].dataType).alias(name) for name in columns))
