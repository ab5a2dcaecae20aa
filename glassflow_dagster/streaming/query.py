"""A pipeline as one Spark query; reads like the way of a record in the documentation."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from glassflow_dagster.clickhouse.tables import Table, filled_columns
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.types import ColumnType
from glassflow_dagster.config.stages import FilterStage, TransformStage, plan_stages
from glassflow_dagster.streaming.stages.dead_letters import keep_raw_of_dead_letters, letters_of_joined
from glassflow_dagster.streaming.stages.decode.decode import decode
from glassflow_dagster.streaming.stages.decode.formats import decoder_of
from glassflow_dagster.streaming.stages.dedup import (
    drop_duplicates,
    drop_duplicates_in_event_time,
    drop_duplicates_of_sides,
    keep_duplicates,
)
from glassflow_dagster.streaming.stages.event_time import read_event_time, read_times
from glassflow_dagster.streaming.stages.filter import keep_matching
from glassflow_dagster.streaming.stages.join import join_sides
from glassflow_dagster.streaming.stages.join_events import as_events, to_sides, unpack_fields
from glassflow_dagster.streaming.stages.mapping import map_columns
from glassflow_dagster.streaming.stages.record_counter import MAX_EVENT_TIMES, TALLIES, JoinCounter
from glassflow_dagster.streaming.stages.replays import mark_replays
from glassflow_dagster.streaming.stages.scope import Scope, field_scope
from glassflow_dagster.streaming.stages.source_index import add_source_index, is_of
from glassflow_dagster.streaming.stages.transform import transform

# What the sink takes of a joined stream.
_JOINED = (*JoinCounter().place, *TALLIES, *MAX_EVENT_TIMES, "is_joined", "row", "size", "dead_letter", "drop_reason")


def build_query(records: DataFrame, config: PipelineConfig, table: Table, checkpoint_id: str) -> DataFrame:
    """Put the stages of a pipeline with one source together. `checkpoint_id` is the checkpoint's name.

    Columns in: those of `read_topics`.
    Columns out: topic_rank INT, partition INT, offset LONG, row STRUCT of the target's columns, size INT, dead_letter
    STRUCT, drop_reason STRING, duplicates LONG; `PartitionWriter` says what each means.
    """
    return _deduplicate(map_records(records, config, table, checkpoint_id), config)


def map_records(records: DataFrame, config: PipelineConfig, table: Table, checkpoint_id: str) -> DataFrame:
    """Put the stages before deduplication together, which look at each record alone.

    Columns in: those of `read_topics`, and any others, which pass as they are.
    Columns added: those of `decode`, `mark_replays` and `map_columns`.
    """
    decoded = decode(records, [decoder_of(config.source, config.fields_of(config.source))])
    marked = mark_replays(decoded, config.replay_topic, checkpoint_id)
    steps = plan_stages(config).steps
    made, names = _apply(marked, steps, field_scope(config.fields_of(config.source)))
    return map_columns(made, filled_columns(config, table), names, _types(table))


def build_join_query(
    records: DataFrame, ticks: DataFrame, config: PipelineConfig, table: Table, checkpoint_id: str
) -> DataFrame:
    """Put the stages of a pipeline that joins two sources together.

    Columns in: those of `read_topics`; ticks as in `ClockSource.read`.
    Columns out: those of `build_query` and those that `JoinCounter` takes. A row's place is that of its left event.
    """
    join = config.join
    assert join is not None
    fields = [config.fields_of(source) for source in config.inputs]
    names = [field_scope(declared, number) for number, declared in enumerate(fields)]

    marked = add_source_index(records, config)
    decoders = [decoder_of(source, declared) for source, declared in zip(config.inputs, fields, strict=True)]
    decoded = decode(marked, decoders)
    events = mark_replays(decoded, config.replay_topic, checkpoint_id)
    stages = plan_stages(config)
    for number, source in enumerate(config.inputs):
        for stage in stages.before.get(source.source_id, ()):
            events = keep_matching(events, stage, names[number], is_of(number))
    timed = read_times(events, join.sides, fields)
    sides = drop_duplicates_of_sides(to_sides(timed, config, join, names), [config.dedup_of(s) for s in config.inputs])
    joined = join_sides(sides, join, ticks)

    rows, joined_scope = unpack_fields(as_events(joined), join, names)
    made, made_names = _apply(rows, stages.steps, joined_scope)
    mapped = map_columns(made, filled_columns(config, table), made_names, _types(table))
    return letters_of_joined(mapped, joined_scope).select(*_JOINED)


def _types(table: Table) -> dict[str, ColumnType]:
    return {name: column.type for name, column in table.columns.items()}


def _apply(events: DataFrame, steps: Sequence[FilterStage | TransformStage], names: Scope) -> tuple[DataFrame, Scope]:
    """Run filters and stateless transforms, and give the names behind the last one."""
    for place, stage in enumerate(steps):
        if isinstance(stage, FilterStage):
            events = keep_matching(events, stage, names)
        else:
            events, names = transform(events, stage, names, place)
    return events, names


def _deduplicate(mapped: DataFrame, config: PipelineConfig) -> DataFrame:
    dedup = config.dedup_of(config.source)
    if dedup is None:
        return keep_duplicates(keep_raw_of_dead_letters(mapped))
    if dedup.clock == "processing":
        return drop_duplicates(keep_raw_of_dead_letters(mapped), dedup)
    timed = read_event_time(mapped, dedup, config.source.schema_fields)
    return drop_duplicates_in_event_time(keep_raw_of_dead_letters(timed, "timing"), dedup)
