"""A definition tried on sample records, with the stages of the pipeline: rows, dead letters, filtered ones, duplicates.

Nothing is written. Deduplication is that of the samples among themselves, whatever the window; of a join one source is
tried, up to the join.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import Sink
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.stages import FilterStage, plan_stages
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.formats import decoder_of
from glassflow_dagster.stream.stages.decode.registry import declare_registry, require_source_schemas
from glassflow_dagster.stream.stages.filter import keep_matching
from glassflow_dagster.stream.stages.mapping_in_scala import TableColumns, map_columns, map_columns_of_all
from glassflow_dagster.stream.stages.route import choose_table, choose_tables
from glassflow_dagster.stream.stages.scope import Scope, field_scope
from glassflow_dagster.stream.stages.transform import transform

_COLUMNS = (
    "sample int, value binary, topic string, partition int, offset bigint, timestamp bigint, key binary, "
    "batch_time timestamp, headers array<struct<key: string, value: binary>>"
)
_REGISTRY_SECONDS = 10.0
# The name under which Spark's JVM knows the registry of a preview.
_REGISTRY = "preview"


@dataclass(frozen=True)
class _Tried:
    """Samples behind the last stage that is tried. scope: of the fields there; row: a column of the tables, if any."""

    events: DataFrame
    scope: Scope
    sinks: tuple[Sink, ...]


def preview(
    spark: SparkSession, config: PipelineConfig, source: Source, records: Sequence[Record]
) -> list[dict[str, Any]]:
    """Return what becomes of each record, in their order; raises `GlassflowError`.

    Each has `outcome`: row, filtered, duplicate, dead_letter, or to_join. rows: table and columns of each row, values
    as they are before ClickHouse's conversion. fields: those that go into the join.
    """
    if source.signal:
        raise GlassflowError("export requests of OpenTelemetry cannot be tried; their events are made by the pipeline")
    require_source_schemas(spark, source, "")
    if source.reads_registry and source.schema_registry is not None:
        declare_registry(spark, _REGISTRY, source.schema_registry, _REGISTRY_SECONDS)
    fields = config.fields_of(source)
    dropping = [0] if source.tombstones == "drop" else []
    decoded = decode(_frame(spark, records), [decoder_of(source, fields, _REGISTRY)], dropping)
    scope = field_scope(fields)
    tried = _to_join(decoded, config, source, scope) if config.join else _to_rows(decoded, config, scope)
    dedup = config.dedup_of(source)
    keys = {name: scope.mappable[name] for name in dedup.key_fields} if dedup else {}
    return list(_outcomes(_collected(tried, keys), tried, scope.kinds, keys))


def _frame(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    """Return the records with the columns that the stages read; all have the present time as that of their batch."""
    now = datetime.now(UTC)
    rows = [
        (
            index, record.value, record.topic, record.partition, record.offset,
            round(now.timestamp() * 1000) if record.timestamp_ms is None else record.timestamp_ms,
            record.key, now, [*record.headers] or None,
        )
        for index, record in enumerate(records)
    ]  # fmt: skip
    return spark.createDataFrame(rows, _COLUMNS)


def _to_join(decoded: DataFrame, config: PipelineConfig, source: Source, scope: Scope) -> _Tried:
    for stage in plan_stages(config).before.get(source.source_id, ()):
        decoded = keep_matching(decoded, stage, scope)
    return _Tried(decoded, scope, ())


def _to_rows(events: DataFrame, config: PipelineConfig, scope: Scope) -> _Tried:
    stages = plan_stages(config)
    for index, stage in enumerate(stages.steps):
        if isinstance(stage, FilterStage):
            events = keep_matching(events, stage, scope)
        else:
            events, scope = transform(events, stage, scope, index)
    sinks = config.sink.by_table
    tables = [
        TableColumns(sink.table_name, sink.mapping, {each.column_name: each.parsed_type for each in sink.mapping})
        for sink in sinks
    ]
    unrouted = config.sink.unrouted
    if config.sink.match == "all":
        chosen = choose_tables(events, stages.tables, scope, unrouted, [])
        return _Tried(map_columns_of_all(chosen, tables, scope), scope, sinks)
    if len(sinks) > 1 or stages.tables[0]:
        events = choose_table(events, stages.tables, scope, unrouted)
    return _Tried(map_columns(events, tables, scope), scope, sinks)


def _collected(tried: _Tried, keys: Mapping[str, Any]) -> list[Row]:
    """Return the samples: outcome, keys, the fields of the mappings, and the indexes of the tables that take each."""
    names = _names(tried)
    columns = [tried.scope.mappable[name].alias(f"f{index}") for index, name in enumerate(names)]
    key_columns = [column.alias(f"k{index}") for index, column in enumerate(keys.values())]
    tables = F.lit(None).cast("array<int>")
    if tried.sinks:
        row = F.col("row")
        kind = tried.events.schema["row"].dataType.typeName()
        tables = {"array": row["table"], "struct": F.array(row["table"])}.get(kind, F.array(F.lit(0)))
    selected = tried.events.select("sample", "error", "drop_reason", tables.alias("tables"), *columns, *key_columns)
    return sorted(selected.collect(), key=lambda each: int(each["sample"]))


def _names(tried: _Tried) -> list[str]:
    """Return the names of the fields that answers have: those of the mappings, or of the events that are joined."""
    if not tried.sinks:
        return [*tried.scope.in_struct.positions]
    return list(dict.fromkeys(each.name for sink in tried.sinks for each in sink.mapping))


def _outcomes(
    rows: Sequence[Row], tried: _Tried, kinds: Mapping[str, FieldKind], keys: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield what becomes of each sample. kinds: of the source's fields, for the keys."""
    names, seen = _names(tried), set()
    for row in rows:
        if row["error"]:
            yield {"outcome": "dead_letter", "stage": row["error"]["stage"], "reason": row["error"]["reason"]}
            continue
        if row["drop_reason"]:
            yield {"outcome": row["drop_reason"]}
            continue
        key = tuple((name, repr(row[f"k{index}"])) for index, name in enumerate(keys))
        if key and key in seen:
            yield {"outcome": "duplicate", "key": {name: row[f"k{index}"] for index, name in enumerate(keys)}}
            continue
        seen.add(key)
        values = {
            name: _value(row[f"f{index}"], tried.scope.kinds.get(name, kinds.get(name, "string")))
            for index, name in enumerate(names)
        }
        if tried.sinks:
            yield {"outcome": "row", "rows": [_row(tried.sinks[index], values) for index in row["tables"]]}
        else:
            yield {"outcome": "to_join", "fields": values}


def _row(sink: Sink, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"table": sink.table_name, "columns": {each.column_name: values[each.name] for each in sink.mapping}}


def _value(value: Any, kind: FieldKind) -> Any:
    """Return a field's value for JSON: arrays and maps, which are JSON text, parsed."""
    if value is not None and kind in {"array", "map", "any"}:
        return json.loads(value)
    return int(value) if isinstance(value, Decimal) and value == int(value) else value
