"""Records of two sources in one stream: which source each belongs to, and what differs between them."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.streaming.stages.replays import origin_topic

# The column of a source's decoded fields, by the source's number.
FIELDS = ("fields", "right_fields")


def add_source_index(records: DataFrame, config: PipelineConfig) -> DataFrame:
    """Tell which source each record belongs to; a replay belongs to the one that it was first read from.

    Columns in: topic, headers. Column added: source INT, its place among the definition's inputs.
    """
    topics = [source.topic for source in config.inputs]
    origin = origin_topic(config.replay_topic)
    numbers = [F.when(origin == F.lit(topic), F.lit(number)) for number, topic in enumerate(topics)]
    return records.withColumn("source", F.coalesce(*numbers, F.lit(0)))


def is_of(number: int) -> Column:
    """Whether a record belongs to a source. Column in: source."""
    return F.col("source") == F.lit(number)


def by_source(columns: Sequence[Column]) -> Column:
    """Choose by the record's source. Column in: source, unless there is but one."""
    if len(columns) == 1:
        return columns[0]
    return F.when(is_of(0), columns[0]).otherwise(columns[1])
