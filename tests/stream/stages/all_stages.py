"""Records through the stages of a definition without deduplication or join, from their bytes to rows."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import parse_column_type
from glassflow_dagster.definition.stages import FilterStage, plan_stages
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.formats import decoder_of
from glassflow_dagster.stream.stages.filter import keep_matching
from glassflow_dagster.stream.stages.mapping_in_scala import TableColumns, map_columns
from glassflow_dagster.stream.stages.scope import field_scope
from glassflow_dagster.stream.stages.transform import transform
from tests.stream.row_binary import read_row


def outcomes(spark: SparkSession, config: PipelineConfig, values: Sequence[bytes]) -> list[Any]:
    """Return what becomes of each record: the tuple of its row, its drop reason, or its error's (stage, reason)."""
    records = spark.createDataFrame([*enumerate(values)], "offset bigint, value binary").withColumn(
        "batch_time", F.timestamp_seconds(F.lit(1_729_411_544))
    )
    rows = _through(records, config).orderBy("offset").select("row", "error", "drop_reason").collect()
    return [_outcome(config, row) for row in rows]


def _through(records: DataFrame, config: PipelineConfig) -> DataFrame:
    types = {m.column_name: parse_column_type(m.column_type) for m in config.sink.mapping}
    events = decode(records, [decoder_of(config.source, config.source.fields, "")])
    names = field_scope(config.source.fields)
    for place, stage in enumerate(plan_stages(config).steps):
        if isinstance(stage, FilterStage):
            events = keep_matching(events, stage, names)
        else:
            events, names = transform(events, stage, names, place)
    return map_columns(events, [TableColumns("d.t", config.sink.mapping, types)], names)


def _outcome(config: PipelineConfig, row: Row) -> Any:
    """Return the one thing that a record became; a record that became several fails the test."""
    [(name, value)] = [(name, value) for name, value in row.asDict().items() if value is not None]
    match name:
        case "row":
            types = [parse_column_type(m.column_type) for m in config.sink.mapping]
            return tuple(read_row(bytes(value), types))
        case "error":
            return value.stage, value.reason
    return value
