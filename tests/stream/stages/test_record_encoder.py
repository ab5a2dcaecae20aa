"""The encoders of the states' case classes: the fields that checkpoints have, names, order and types."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.stream.spark.session import java


def field(name: str, kind: str, *, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


@pytest.mark.parametrize(
    ("case_class", "fields"),
    [
        (
            "Event",
            [
                field("key", "binary", nullable=True),
                field("source", "integer", nullable=False),
                field("topic", "integer", nullable=False),
                field("partition", "integer", nullable=False),
                field("offset", "long", nullable=False),
                field("payload", "binary", nullable=True),
            ],
        ),
        ("Pack", [field("until", "long", nullable=False), field("keys", "binary", nullable=True)]),
        ("Queue", [field(name, "long", nullable=False) for name in ("first", "next", "due")]),
    ],
)
def test_a_case_class_is_encoded_by_its_fields(spark: SparkSession, case_class: str, fields: list[Any]) -> None:
    assert json.loads(encoder(spark, f"glassflow.{case_class}").schema().json())["fields"] == fields


def test_booleans_are_encoded_too(spark: SparkSession) -> None:
    schema = json.loads(encoder(spark, "glassflow.JoinInput").schema().json())
    assert field("keepLate", "boolean", nullable=False) in schema["fields"]


def test_a_long_that_may_be_null_is_encoded_so(spark: SparkSession) -> None:
    schema = json.loads(encoder(spark, "glassflow.TimedDedupResult").schema().json())
    assert field("watermark", "long", nullable=True) in schema["fields"]


def encoder(spark: SparkSession, name: str) -> Any:
    jvm = java(spark)
    kind = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    return jvm.glassflow.RecordEncoder.of(jvm.scala.reflect.ClassTag.apply(kind))
