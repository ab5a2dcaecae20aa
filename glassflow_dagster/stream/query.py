"""Builds a pipeline's Spark query from its stages, in the order in which records pass them."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.stages import FilterStage, TransformStage, plan_stages
from glassflow_dagster.stores.clickhouse.table import Table, filled_columns
from glassflow_dagster.stream.stages.columns import MAX_EVENT_TIMES, PAYLOAD, TALLIES
from glassflow_dagster.stream.stages.dead_letter_column import dead_letters_of_joined, keep_raw_of_dead_letters
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.formats import decoder_of
from glassflow_dagster.stream.stages.decode.registry import registry_name
from glassflow_dagster.stream.stages.dedup_in_scala import (
    drop_duplicates,
    drop_duplicates_in_event_time,
    drop_duplicates_of_join_inputs,
    keep_duplicates,
)
from glassflow_dagster.stream.stages.event_time import read_event_time, read_times
from glassflow_dagster.stream.stages.filter import keep_matching
from glassflow_dagster.stream.stages.join_events import as_events, to_join_inputs, unpack_fields
from glassflow_dagster.stream.stages.join_in_scala import join_inputs
from glassflow_dagster.stream.stages.mapping_in_scala import TableColumns, map_columns, map_columns_of_all
from glassflow_dagster.stream.stages.otlp_in_scala import (
    fill_attributes_of_key,
    keep_outcomes,
    require_key,
    split_requests,
)
from glassflow_dagster.stream.stages.record_counter import JoinCounter
from glassflow_dagster.stream.stages.replays import mark_replays
from glassflow_dagster.stream.stages.route import choose_table, choose_tables, drop_replays_for_others
from glassflow_dagster.stream.stages.scope import Scope, field_scope
from glassflow_dagster.stream.stages.source_index import add_source_index, is_of
from glassflow_dagster.stream.stages.transform import transform

# The columns of a joined stream that the sink takes.
_JOINED_COLUMNS = (*JoinCounter().position_columns, *TALLIES, *MAX_EVENT_TIMES, "is_joined", *PAYLOAD)


def build_query(records: DataFrame, config: PipelineConfig, tables: Sequence[Table], checkpoint_id: str) -> DataFrame:
    """Build the query of a pipeline with one source.

    tables: the sink's, in the order of `Sink.by_table`.
    checkpoint_id: the checkpoint's id, to recognize its replays.

    Columns in: those of `read_records`.
    Columns out: `position`, `PAYLOAD`, `DUPLICATES`, and of an OTLP source `EVENT`.
    """
    return _deduplicate(map_records(records, config, tables, checkpoint_id), config)


def map_records(records: DataFrame, config: PipelineConfig, tables: Sequence[Table], checkpoint_id: str) -> DataFrame:
    """Apply the stages before deduplication: decode, mark replays, filters and stateless transforms, mapping.

    checkpoint_id: the checkpoint's id; only replays that were sent to it are read.
    Columns in: those of `read_records`, and any others, which pass unchanged. Of an OTLP source, whose records are many
    events, each event is a row, and each record another one.
    Columns added: those of `decode`, `mark_replays` and `map_columns`, and of an OTLP source item INT.
    """
    decoded = _decode_requests(records, config) if config.source.signal else _decode(records, config)
    marked = mark_replays(decoded, config.replay_topic, checkpoint_id)
    steps = plan_stages(config).steps
    events, scope = _apply(marked, steps, field_scope(config.fields_of(config.source)))
    return _map(events, config, tables, scope)


def build_join_query(
    records: DataFrame, clock_rows: DataFrame, config: PipelineConfig, tables: Sequence[Table], checkpoint_id: str
) -> DataFrame:
    """Build the query of a pipeline that joins two sources.

    Of each source, records are decoded, marked as replays, filtered, timed and deduplicated; then they are joined, and
    the joined rows are transformed and mapped.
    checkpoint_id: only dead letters that were replayed to this checkpoint are read.
    clock_rows: a stream of watermarks (column clock TIMESTAMP), which go on while the topics are silent, so that
        waiting events are decided.
    Columns in: those of `read_records`. Columns out: `_JOINED_COLUMNS`, and timestamp LONG, which is NULL. topic_rank,
    partition and offset are those of the left event.
    """
    join = config.join
    assert join is not None
    fields = [config.fields_of(source) for source in config.inputs]
    scopes = [field_scope(declared, index) for index, declared in enumerate(fields)]

    marked = add_source_index(records, config)
    decoded = _decode(marked, config)
    events = mark_replays(decoded, config.replay_topic, checkpoint_id)
    stages = plan_stages(config)
    for index, source in enumerate(config.inputs):
        for stage in stages.before.get(source.source_id, ()):
            events = keep_matching(events, stage, scopes[index], is_of(index))
    timed = read_times(events, join.sides, fields)
    dedups = [config.dedup_of(source) for source in config.inputs]
    inputs = drop_duplicates_of_join_inputs(to_join_inputs(timed, config, join, scopes), dedups)
    joined = join_inputs(inputs, join, clock_rows)

    rows, joined_scope = unpack_fields(as_events(joined), join, scopes)
    transformed, final_scope = _apply(rows, stages.steps, joined_scope)
    mapped = _map(transformed, config, tables, final_scope)
    # The join's state keeps no timestamp, so the age of a joined row is not measured.
    unmeasured = dead_letters_of_joined(mapped, joined_scope).withColumn("timestamp", F.lit(None).cast("bigint"))
    return unmeasured.select(*_JOINED_COLUMNS)


def _decode(records: DataFrame, config: PipelineConfig) -> DataFrame:
    decoders = [
        decoder_of(source, config.fields_of(source), registry_name(config.pipeline_id, source.source_id))
        for source in config.inputs
    ]
    dropping = [index for index, source in enumerate(config.inputs) if source.tombstones == "drop"]
    return decode(records, decoders, dropping)


def _decode_requests(records: DataFrame, config: PipelineConfig) -> DataFrame:
    """Split the export requests of an OTLP source into events, and decode these."""
    source, dedup = config.source, config.dedup_of(config.source)
    events = keep_outcomes(_decode(split_requests(records, source, config.replay_topic), config))
    if dedup is None:
        return events
    return require_key(fill_attributes_of_key(events, dedup), dedup, config.fields_of(source))


def _map(events: DataFrame, config: PipelineConfig, tables: Sequence[Table], scope: Scope) -> DataFrame:
    """Choose the table or tables of each event, where there is a choice, and map its fields to the tables' columns."""
    conditions, columns, unrouted = plan_stages(config).tables, table_columns(config, tables), config.sink.unrouted
    # A joined row's headers are not known; its dead letters are not replayed to one table
    # (stores/dead_letters/replay.py).
    names = [] if config.join else [table.name for table in columns]
    if config.sink.match == "all":
        return map_columns_of_all(choose_tables(events, conditions, scope, unrouted, names), columns, scope)
    if len(conditions) > 1 or conditions[0]:
        events = choose_table(events, conditions, scope, unrouted)
    if names:
        events = drop_replays_for_others(events, names)
    return map_columns(events, columns, scope)


def table_columns(config: PipelineConfig, tables: Sequence[Table]) -> list[TableColumns]:
    """Return the filled columns of the sink's tables. tables: in the order of `Sink.by_table`."""
    return [
        TableColumns(
            table.full_name,
            filled_columns(of_table, table),
            {name: column.type for name, column in table.columns.items()},
        )
        for of_table, table in zip(config.by_table, tables, strict=True)
    ]


def _apply(events: DataFrame, steps: Sequence[FilterStage | TransformStage], scope: Scope) -> tuple[DataFrame, Scope]:
    """Apply filters and stateless transforms; return the events, and the scope after the last one."""
    for index, stage in enumerate(steps):
        if isinstance(stage, FilterStage):
            events = keep_matching(events, stage, scope)
        else:
            events, scope = transform(events, stage, scope, index)
    return events, scope


def _deduplicate(mapped: DataFrame, config: PipelineConfig) -> DataFrame:
    """Drop duplicates, on the processing or the event clock, as the definition says; without deduplication none.

    Raw bytes of good records are dropped first, so that they do not go through the shuffle by key.
    """
    dedup = config.dedup_of(config.source)
    if dedup is None:
        return keep_duplicates(keep_raw_of_dead_letters(mapped))
    if dedup.clock == "processing":
        return drop_duplicates(keep_raw_of_dead_letters(mapped), dedup)
    timed = read_event_time(mapped, dedup, config.source.schema_fields)
    # "timing" is the column that `read_event_time` has added.
    return drop_duplicates_in_event_time(keep_raw_of_dead_letters(timed, "timing"), dedup)
