"""Evaluates one expression on one sample record, with the stages of a pipeline (the command `eval`)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from glassflow_dagster.definition.expressions.check import Checked
from glassflow_dagster.definition.expressions.outputs import output_kind
from glassflow_dagster.definition.model.source import Encoding, SchemaField, Source
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.stages import CheckedOutput, FilterStage, TransformStage
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.spark.spark_errors import explain_failure
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.decoder import Decoder
from glassflow_dagster.stream.stages.decode.formats import decoder_of
from glassflow_dagster.stream.stages.decode.json_in_scala import json_decoder
from glassflow_dagster.stream.stages.decode.key_fields_in_scala import add_key_fields, value_fields
from glassflow_dagster.stream.stages.decode.registry import declare_registry, require_source_schemas
from glassflow_dagster.stream.stages.filter import keep_matching
from glassflow_dagster.stream.stages.scope import field_scope
from glassflow_dagster.stream.stages.transform import transform

# The name of the output that is evaluated; it is in the reason of a dead letter.
OUTPUT = "value"

# How long a schema registry is waited for.
_REGISTRY_SECONDS = 10.0

# The encoding of the key of a sample that is JSON.
_JSON_KEY = Encoding("json", schema=None, of_registry=False, part="key")

# The columns of a record. All but value and key are made up, as a sample is not in Kafka.
_RECORD = (
    "value binary, topic string, partition int, offset bigint, timestamp bigint, key binary, batch_time timestamp, "
    "headers array<struct<key string, value binary>>"
)


@dataclass(frozen=True)
class Evaluation:
    """The result of an expression: a value and its kind, or the reason why the record would be a dead letter.

    For a filter the value is whether the event passes. Arrays and objects are Python lists and dicts.
    """

    value: Any
    kind: FieldKind
    dead_letter: str | None = None


@dataclass(frozen=True)
class Sample:
    """The value of a sample record, the declared fields, what decodes it to them, and its key (None without one)."""

    value: bytes
    fields: Sequence[SchemaField]
    decoder: Decoder
    key: bytes | None = None


def json_sample(
    value: bytes, fields: Sequence[SchemaField], key: bytes | None = None, *, of_otlp: bool = False
) -> Sample:
    """Return a sample that is JSON, as is its key. of_otlp: it is an event of an OTLP source."""
    of_value = value_fields(fields)
    decoder = json_decoder(of_value, of_otlp=of_otlp)
    if len(of_value) < len(fields):
        decoder = add_key_fields(decoder, _JSON_KEY, fields, registry="")
    return Sample(value, fields, decoder, key)


def encoded_sample(spark: SparkSession, value: bytes, key: bytes | None, source: Source) -> Sample:
    """Return a sample as Kafka has it, in the formats of a source, with the source's schemas or registry.

    Raises `GlassflowError` for a schema that is none, and certificates of a registry that are none.
    """
    require_source_schemas(spark, source, "")
    if source.reads_registry and source.schema_registry is not None:
        declare_registry(spark, OUTPUT, source.schema_registry, _REGISTRY_SECONDS)
    return Sample(value, source.fields, decoder_of(source, source.fields, OUTPUT), key)


def evaluate_filter(spark: SparkSession, checked: Checked, sample: Sample) -> Evaluation:
    """Evaluate a filter's condition on a record: whether the event passes, or why it would be a dead letter.

    In the condition now() is the present time. Raises `GlassflowError` where the schema registry does not answer.
    """
    events = keep_matching(_decode(spark, sample), FilterStage(checked), field_scope(sample.fields))
    row = _only_row(events.select("error", "drop_reason"))
    passes = row["drop_reason"] is None
    return _dead_letter(row, "bool") or Evaluation(passes, "bool")


def evaluate_output(spark: SparkSession, checked: Checked, output_type: str, sample: Sample) -> Evaluation:
    """Evaluate an output of a transform on a record: its value, or why the record would be a dead letter.

    output_type: the type that the output declares. now() is the present time. Raises as `evaluate_filter` does.
    """
    kind = output_kind(checked.kind, output_type)
    stage = TransformStage((CheckedOutput(OUTPUT, checked, output_type, kind),))
    events, scope = transform(_decode(spark, sample), stage, field_scope(sample.fields), index=0)
    row = _only_row(events.select("error", scope.mappable[OUTPUT].alias("value")))
    return _dead_letter(row, kind) or Evaluation(_to_python(row["value"], kind), kind)


def _decode(spark: SparkSession, sample: Sample) -> DataFrame:
    """Return the sample as a decoded record; columns: those of `decode` and `_RECORD`."""
    # With its zone: pyspark takes a time without one for local time.
    now = datetime.now(UTC)
    row = {
        "value": sample.value, "topic": "sample", "partition": 0, "offset": 0,
        "timestamp": round(now.timestamp() * 1000), "key": sample.key, "batch_time": now, "headers": None,
    }  # fmt: skip
    record = spark.createDataFrame([row], _RECORD)
    return decode(record, [sample.decoder])


def _only_row(events: DataFrame) -> Row:
    """Return the sample's row; raises `GlassflowError` where the schema registry cannot be used."""
    try:
        return events.collect()[0]
    except (Py4JJavaError, PySparkException) as error:
        raise GlassflowError(explain_failure(error, rest="")) from error


def _dead_letter(row: Row, kind: FieldKind) -> Evaluation | None:
    """Return the evaluation of a record that would be a dead letter; None for any other."""
    error = row["error"]
    return Evaluation(value=None, kind=kind, dead_letter=f"{error['stage']}: {error['reason']}") if error else None


def _to_python(value: Any, kind: FieldKind) -> Any:
    """Return a field's value as a Python value: JSON text of an array, map or any value parsed; a decimal as an int."""
    if value is None:
        return None
    if kind in ("array", "map", "any"):
        return json.loads(value)
    # The only decimals are DECIMAL(20,0), of integers beyond 64 bits.
    return int(value) if isinstance(value, Decimal) else value
