"""One expression on one record, through the stages of a pipeline: what it would make of such an event."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Row, SparkSession

from glassflow_dagster.config.model.source import SchemaField
from glassflow_dagster.config.model.types import FieldKind
from glassflow_dagster.config.stages import CheckedOutput, FilterStage, TransformStage
from glassflow_dagster.expressions.language.check import Checked
from glassflow_dagster.expressions.language.outputs import output_kind
from glassflow_dagster.streaming.stages.decode.decode import decode
from glassflow_dagster.streaming.stages.decode.json_format import json_decoder
from glassflow_dagster.streaming.stages.filter import keep_matching
from glassflow_dagster.streaming.stages.scope import field_scope
from glassflow_dagster.streaming.stages.transform import transform

# The name of the output that is tried; it stands in the reason of a dead letter.
OUTPUT = "value"

# What a record carries beside its value; nothing of a sample is known.
_RECORD = (
    "value binary, topic string, partition int, offset bigint, timestamp timestamp, key binary, batch_time timestamp"
)


@dataclass(frozen=True)
class Outcome:
    """What became of the record: a value of a kind of field, or the reason why it is a dead letter.

    Of a filter the value says whether the event goes on. Arrays and objects are Python's own.
    """

    value: Any
    kind: FieldKind
    dead_letter: str | None = None


def try_filter(spark: SparkSession, checked: Checked, fields: Sequence[SchemaField], sample: bytes) -> Outcome:
    """Ask a filter about a record; now() is the present time."""
    kept = keep_matching(_decoded(spark, fields, sample), FilterStage(checked), field_scope(fields))
    row = kept.select("error", "drop_reason").collect()[0]
    return _refused(row, "bool") or Outcome(row["drop_reason"] is None, "bool")


def try_transform(
    spark: SparkSession, checked: Checked, output_type: str, fields: Sequence[SchemaField], sample: bytes
) -> Outcome:
    """Make an output of a record; now() is the present time."""
    kind = output_kind(checked.kind, output_type)
    stage = TransformStage((CheckedOutput(OUTPUT, checked, output_type, kind),))
    made, names = transform(_decoded(spark, fields, sample), stage, field_scope(fields), 0)
    row = made.select("error", names.mappable[OUTPUT].alias("value")).collect()[0]
    return _refused(row, kind) or Outcome(_plain(row["value"], kind), kind)


def _decoded(spark: SparkSession, fields: Sequence[SchemaField], sample: bytes) -> Any:
    now = datetime.now(UTC).replace(tzinfo=None)
    record = spark.createDataFrame([(sample, "sample", 0, 0, now, None, now)], _RECORD)
    return decode(record, [json_decoder(fields)])


def _refused(row: Row, kind: FieldKind) -> Outcome | None:
    error = row["error"]
    return Outcome(None, kind, f"{error['stage']}: {error['reason']}") if error else None


def _plain(value: Any, kind: FieldKind) -> Any:
    if value is None:
        return None
    if kind in ("array", "map"):
        return json.loads(value)
    return int(value) if isinstance(value, Decimal) else value
