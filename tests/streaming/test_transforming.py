"""Filters and transforms on their way: what is kept, counted or refused, and what the columns are filled from."""

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.stages import FilterStage, plan_stages
from glassflow_dagster.config.types import parse_column_type
from glassflow_dagster.streaming.decode import decode
from glassflow_dagster.streaming.filter import keep_matching
from glassflow_dagster.streaming.framing import unframe
from glassflow_dagster.streaming.mapping import map_columns
from glassflow_dagster.streaming.names import field_names
from glassflow_dagster.streaming.transform import transform

CONFIG = PipelineConfig.model_validate({
    "pipeline_id": "scans",
    "sources": [{
        "type": "kafka", "source_id": "s", "topic": "t", "connection_params": {"brokers": ["localhost:9092"]},
        "schema_fields": [
            {"name": "id", "type": "string"},
            {"name": "n", "type": "int", "required": False},
            {"name": "unit", "type": "string", "default": "kg"},
            {"name": "scale", "type": "float", "default": 2},
        ],
    }],
    "transforms": [
        {"type": "filter", "source_id": "s", "config": {"expression": "n > 1"}},
        {"type": "stateless", "source_id": "s", "config": {"transforms": [
            {"expression": "upper(id)", "output_name": "id", "output_type": "string"},
            {"expression": "n * scale", "output_name": "weight", "output_type": "float64"},
            {"expression": "toInt(split(id, '-')[1])", "output_name": "part", "output_type": "int"},
            {"expression": "unit", "output_name": "unit", "output_type": "string"},
        ]}},
        {"type": "filter", "source_id": "s", "config": {
            "expression": "weight < 100.0 and n != 5 and now().Year() == 2024",
        }},
    ],
    "sink": {
        "type": "clickhouse", "table": "t",
        "connection_params": {"host": "localhost", "port": 9000, "database": "d", "username": "u"},
        "mapping": [
            {"name": "id", "column_name": "id", "column_type": "String"},
            {"name": "weight", "column_name": "w", "column_type": "Float64"},
            {"name": "part", "column_name": "p", "column_type": "Int8"},
            {"name": "unit", "column_name": "u", "column_type": "String"},
            {"name": "_offset", "column_name": "o", "column_type": "UInt64"},
        ],
    },
})  # fmt: skip

# What a record's JSON is, and what becomes of it: a row, a word, or the stage and the reason of its refusal.
RECORDS: list[tuple[dict[str, Any], object]] = [
    ({"id": "a-7", "n": 2}, ("A-7", 4.0, 7, "kg", 0)),
    ({"id": "b-8", "n": 2, "unit": "t", "scale": 0.5}, ("B-8", 1.0, 8, "t", 1)),
    ({"id": "c-9", "n": 1}, "filtered"),
    ({"id": "d-9", "n": 5}, "filtered"),
    ({"id": "e-9", "n": 50}, "filtered"),
    ({"id": "f-9"}, ("filter", "n > 1: ")),
    ({"id": "g", "n": 3}, ("transform", "output 'part', toInt(split(id, '-')[1]): ")),
    ({"id": "h-300", "n": 3}, ("mapping", "column 'p' (Int8): 300 is out of range")),
    ({"id": 1, "n": 3}, ("decode", "field 'id': expected string")),
    ({"id": "i-1", "n": 3, "unit": None}, ("I-1", 6.0, 1, "kg", 9)),
]


def through_all_stages(records: DataFrame) -> DataFrame:
    types = {m.column_name: parse_column_type(m.column_type) for m in CONFIG.sink.mapping}
    events, names = decode(unframe(records, [CONFIG.source]), [CONFIG.source.fields]), field_names(CONFIG.source.fields)
    for place, stage in enumerate(plan_stages(CONFIG).steps):
        if isinstance(stage, FilterStage):
            events = keep_matching(events, stage, names)
        else:
            events, names = transform(events, stage, names, place)
    return map_columns(events, CONFIG.sink.mapping, names, types)


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> list[Row]:
    records = [(offset, json.dumps(record).encode()) for offset, (record, _) in enumerate(RECORDS)]
    frame = spark.createDataFrame(records, "offset bigint, value binary").withColumn(
        "batch_time", F.timestamp_seconds(F.lit(1_729_411_544))
    )
    return through_all_stages(frame).orderBy("offset").select("row", "refusal", "dropped").collect()


def test_every_record_becomes_a_row_or_is_counted_or_refused_with_its_expression(found: list[Row]) -> None:
    for row, (record, expected) in zip(found, RECORDS, strict=True):
        if isinstance(expected, str):
            assert (row.dropped, row.row, row.refusal) == (expected, None, None), record
        elif isinstance(expected, tuple) and len(expected) == 2:
            stage, reason = expected
            assert (row.dropped, row.row, row.refusal.stage) == (None, None, stage), record
            assert row.refusal.reason.startswith(reason), row.refusal.reason
            assert len(row.refusal.reason) > len(reason), record
        else:
            assert (row.dropped, row.refusal, tuple(row.row)) == (None, None, expected), record
