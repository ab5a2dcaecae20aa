"""Records of two sources in one stream: the index of each record's source, and columns that depend on it."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stream.stages.replays import origin_topic

# The columns of the decoded fields, by source index.
FIELDS = ("fields", "right_fields")
# That of a pipeline with one source.
ONLY_FIELDS = FIELDS[0]


def add_source_index(records: DataFrame, config: PipelineConfig) -> DataFrame:
    """Add the index of each record's source; a replayed record belongs to the source that it was first read from.

    Columns in: topic, headers. Column added: source INT, the index among the definition's inputs; 0 for a record of the
    replay topic that names none of their topics.
    """
    origin = origin_topic(config.replay_topic)
    indexes = [F.when(origin.isin(*source.topic_names), F.lit(index)) for index, source in enumerate(config.inputs)]
    return records.withColumn("source", F.coalesce(*indexes, F.lit(0)))


def is_of(index: int) -> Column:
    """Return a condition, BOOLEAN: the record's source has this index. Column in: source."""
    return F.col("source") == F.lit(index)


def by_source(columns: Sequence[Column]) -> Column:
    """Return a column with the value that `columns` has for the record's source.

    columns: one per source, by source index. Column in: source, if there are two.
    """
    if len(columns) == 1:
        return columns[0]
    return F.when(is_of(0), columns[0]).otherwise(columns[1])
