"""Filters and transforms in the stream: records kept, counted or rejected, and the values of the columns."""

import json
from typing import Any

from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from tests.stream.stages.all_stages import outcomes
from tests.support.definition import definition, filter_transform, mapping, sink, source, stateless_transform

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


def test_every_record_becomes_a_row_or_is_counted_or_refused_with_its_expression(spark: SparkSession) -> None:
    found = outcomes(spark, CONFIG, [json.dumps(record).encode() for record, _ in RECORDS])
    for outcome, (record, expected) in zip(found, RECORDS, strict=True):
        if isinstance(expected, tuple) and len(expected) == 2:
            (stage, reason), (expected_stage, start) = outcome, expected
            assert (stage, reason[: len(start)]) == (expected_stage, start), record
            assert len(reason) > len(start), record
        else:
            assert outcome == expected, record
