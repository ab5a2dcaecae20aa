"""A pipeline as one Spark query; reads like the way of a record in the documentation."""

from pyspark.sql import DataFrame

from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.stages import FilterStage, plan_stages
from glassflow_dagster.streaming.dead_letters import keep_raw_of_refused
from glassflow_dagster.streaming.decode import decode
from glassflow_dagster.streaming.dedup import drop_duplicates, drop_duplicates_in_event_time, keep_duplicates
from glassflow_dagster.streaming.event_time import read_event_time
from glassflow_dagster.streaming.filter import keep_matching
from glassflow_dagster.streaming.framing import unframe
from glassflow_dagster.streaming.mapping import map_columns
from glassflow_dagster.streaming.names import Names, field_names
from glassflow_dagster.streaming.replays import mark_replays
from glassflow_dagster.streaming.transform import transform


def build_query(records: DataFrame, config: PipelineConfig, table: Table, incarnation: str) -> DataFrame:
    """Put the stages together. `incarnation` is the checkpoint's name.

    Columns in: those of `read_topics`.
    Columns out: topic_rank INT, partition INT, offset LONG, row STRUCT of the target's columns, size INT, refused
    STRUCT, dropped STRING, duplicates LONG; `sink.PartitionWriter` says what each means.
    """
    types = {name: column.type for name, column in table.columns.items()}

    decoded = decode(unframe(records, config.source), config.fields)
    marked = mark_replays(decoded, config.replay_topic, incarnation)
    made, names = _apply(marked, config)
    mapped = map_columns(made, config.sink.mapping, names, types)
    return _deduplicate(mapped, config)


def _apply(events: DataFrame, config: PipelineConfig) -> tuple[DataFrame, Names]:
    """Run the definition's filters and stateless transforms, and give the names behind the last one."""
    names = field_names(config.fields)
    for place, stage in enumerate(plan_stages(config).steps):
        if isinstance(stage, FilterStage):
            events = keep_matching(events, stage, names)
        else:
            events, names = transform(events, stage, names, place)
    return events, names


def _deduplicate(mapped: DataFrame, config: PipelineConfig) -> DataFrame:
    if config.dedup is None:
        return keep_duplicates(keep_raw_of_refused(mapped))
    if config.dedup.clock == "processing":
        return drop_duplicates(keep_raw_of_refused(mapped), config.dedup)
    timed = read_event_time(mapped, config.dedup, config.source.schema_fields)
    return drop_duplicates_in_event_time(keep_raw_of_refused(timed, "timing"), config.dedup)
