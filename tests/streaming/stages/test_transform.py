"""Filters and transforms in the stream: records kept, counted or rejected, and the values of the columns."""

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.types import parse_column_type
from glassflow_dagster.config.stages import FilterStage, plan_stages
from glassflow_dagster.streaming.stages.decode.decode import decode
from glassflow_dagster.streaming.stages.decode.formats import decoder_of
from glassflow_dagster.streaming.stages.filter import keep_matching
from glassflow_dagster.streaming.stages.mapping import TableColumns, map_columns
from glassflow_dagster.streaming.stages.scope import field_scope
from glassflow_dagster.streaming.stages.transform import transform
from tests.definition import definition, filter_transform, mapping, sink, source, stateless_transform
from tests.streaming.row_binary import read_row

CONFIG = PipelineConfig.model_validate(
    definition(
        "scans",
        source("s", [
            {"name": "id", "type": "string"},
            {"name": "n", "type": "int", "required": False},
            {"name": "unit", "type": "string", "default": "kg"},
            {"name": "scale", "type": "float", "default": 2},
        ]),
        sink([
            mapping("id", "String"),
            mapping("weight", "Float64", "w"),
            mapping("part", "Int8", "p"),
            mapping("unit", "String", "u"),
            mapping("_offset", "UInt64", "o"),
        ]),
        filter_transform("s", "n > 1"),
        stateless_transform(
            "s",
            ("id", "upper(id)"),
            ("weight", "n * scale", "float64"),
            ("part", "toInt(split(id, '-')[1])", "int"),
            ("unit", "unit"),
        ),
        filter_transform("s", "weight < 100.0 and n != 5 and now().Year() == 2024"),
    )
)  # fmt: skip

# A record's JSON, and its outcome: a row, a word, or the stage and the reason of its error.
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
    events, names = (
        decode(records, [decoder_of(CONFIG.source, CONFIG.source.fields, "")]),
        field_scope(CONFIG.source.fields),
    )
    for place, stage in enumerate(plan_stages(CONFIG).steps):
        if isinstance(stage, FilterStage):
            events = keep_matching(events, stage, names)
        else:
            events, names = transform(events, stage, names, place)
    return map_columns(events, [TableColumns("d.t", CONFIG.sink.mapping, types)], names)


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> list[Row]:
    records = [(offset, json.dumps(record).encode()) for offset, (record, _) in enumerate(RECORDS)]
    frame = spark.createDataFrame(records, "offset bigint, value binary").withColumn(
        "batch_time", F.timestamp_seconds(F.lit(1_729_411_544))
    )
    return through_all_stages(frame).orderBy("offset").select("row", "error", "drop_reason").collect()


def test_every_record_becomes_a_row_or_is_counted_or_refused_with_its_expression(found: list[Row]) -> None:
    types = [parse_column_type(m.column_type) for m in CONFIG.sink.mapping]
    for row, (record, expected) in zip(found, RECORDS, strict=True):
        if isinstance(expected, str):
            assert (row.drop_reason, row.row, row.error) == (expected, None, None), record
        elif isinstance(expected, tuple) and len(expected) == 2:
            stage, reason = expected
            assert (row.drop_reason, row.row, row.error.stage) == (None, None, stage), record
            assert row.error.reason.startswith(reason), row.error.reason
            assert len(row.error.reason) > len(reason), record
        else:
            assert (row.drop_reason, row.error) == (None, None), record
            assert tuple(read_row(bytes(row.row), types)) == expected, record
