"""A pipeline as one Spark query; reads like the way of a record in the documentation."""

from pyspark.sql import DataFrame, SparkSession

from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.streaming.dead_letters import keep_raw_of_refused
from glassflow_dagster.streaming.decode import decode
from glassflow_dagster.streaming.dedup import drop_duplicates, keep_duplicates
from glassflow_dagster.streaming.mapping import map_columns
from glassflow_dagster.streaming.source import BatchLimits, read_topic


def build_query(
    spark: SparkSession, config: PipelineConfig, table: Table, limits: BatchLimits, *, until_caught_up: bool
) -> DataFrame:
    """Put the stages together.

    Columns out: partition INT, offset LONG, row STRUCT of the target's columns, size INT, refused STRUCT, duplicates
    LONG; `sink.PartitionWriter` says what each means.
    """
    types = {name: column.type for name, column in table.columns.items()}

    records = read_topic(spark, config.source, limits, until_caught_up=until_caught_up)
    decoded = decode(records, config.source.schema_fields)
    mapped = map_columns(decoded, config.sink.mapping, config.source.schema_fields, types)
    events = keep_raw_of_refused(mapped)
    return drop_duplicates(events, config.dedup) if config.dedup else keep_duplicates(events)
