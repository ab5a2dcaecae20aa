"""The result of `eval` equals what a pipeline's stages make of the record."""

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.definition.expressions.check import check_filter, check_transform
from glassflow_dagster.definition.model.source import METADATA_FIELDS, SchemaField
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.stream.evaluate import Evaluation, evaluate_filter, evaluate_output, json_sample

FIELDS = (
    SchemaField(name="name", type="string"),
    SchemaField(name="n", type="uint64", required=False),
    SchemaField(name="user", type="map", required=False),
    SchemaField(name="unit", type="string", default="kg"),
)
KINDS: dict[str, FieldKind] = {**METADATA_FIELDS, **{field.name: field.kind for field in FIELDS}}

TRANSFORMS: list[tuple[str, str, bytes, Evaluation]] = [
    ("upper(name) + unit", "", b'{"name": "a"}', Evaluation("Akg", "string")),
    ("n", "", b'{"name": "a", "n": 18446744073709551615}', Evaluation(2**64 - 1, "uint")),
    ("user", "", b'{"name": "a", "user": {"k": [1]}}', Evaluation({"k": [1]}, "map")),
    ("user?.k", "string", b'{"name": "a"}', Evaluation(None, "string")),
    ("now().Year() > 2000 and _topic == 'sample'", "bool", b'{"name": "a"}', Evaluation(value=True, kind="bool")),
    ("n + 1", "", b'{"name": "a"}', Evaluation(None, "int", "transform: output 'value', n + 1: n + 1: n is nil")),
    (
        "name",
        "int",
        b'{"name": "a"}',
        Evaluation(None, "int", "transform: output 'value', name: the value is not of type int"),
    ),
    ("name", "", b'{"name": 1}', Evaluation(None, "string", "decode: field 'name': expected string, got number")),
]
FILTERS: list[tuple[str, bytes, Evaluation]] = [
    ("n > 1", b'{"name": "a", "n": 2}', Evaluation(value=True, kind="bool")),
    ("n > 1", b'{"name": "a", "n": 1}', Evaluation(value=False, kind="bool")),
    ("n > 1", b'{"name": "a"}', Evaluation(None, "bool", "filter: n > 1: n > 1: n is nil")),
    ("n > 1", b"{", Evaluation(None, "bool", "decode: invalid JSON: it ends too early")),
]


@pytest.mark.parametrize(("expression", "output_type", "sample", "outcome"), TRANSFORMS)
def test_a_transform_is_tried(
    spark: SparkSession, expression: str, output_type: str, sample: bytes, outcome: Evaluation
) -> None:
    assert (
        evaluate_output(spark, check_transform(expression, KINDS), output_type, json_sample(sample, FIELDS)) == outcome
    )


@pytest.mark.parametrize(("expression", "sample", "outcome"), FILTERS)
def test_a_filter_is_tried(spark: SparkSession, expression: str, sample: bytes, outcome: Evaluation) -> None:
    found = evaluate_filter(spark, check_filter(expression, KINDS), json_sample(sample, FIELDS))
    assert (found.value, found.kind) == (outcome.value, outcome.kind)
    assert (found.dead_letter or "").startswith(outcome.dead_letter or "")
    assert (found.dead_letter is None) == (outcome.dead_letter is None)


@pytest.fixture
def far_from_utc() -> Iterator[None]:
    """Set this process to a local time that is hours from UTC, whatever the machine has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_the_batch_time_is_the_present_in_any_time_zone(spark: SparkSession) -> None:
    before = time.time()
    found = evaluate_output(spark, check_transform("_batch_time", KINDS), "", json_sample(b'{"name": "a"}', FIELDS))
    assert before - 1 < found.value < time.time() + 1


def test_an_attribute_of_an_otlp_event_is_a_field(spark: SparkSession) -> None:
    fields = [SchemaField(name="attributes.http.method", type="string")]
    checked = check_transform("attributes.http.method", {"attributes.http.method": "string"})
    sample = b'{"attributes": {"http.method": "GET"}}'
    of_otlp = json_sample(sample, fields, of_otlp=True)
    assert evaluate_output(spark, checked, "", of_otlp) == Evaluation("GET", "string")
    assert evaluate_output(spark, checked, "", json_sample(sample, fields)).dead_letter


def test_the_key_of_a_sample_has_fields(spark: SparkSession) -> None:
    fields = [SchemaField(name="_key.id", type="int64"), SchemaField(name="n", type="int64")]
    checked = check_transform("_key.id + n", {field.name: field.kind for field in fields})
    samples = [json_sample(b'{"n": 1}', fields, key) for key in (b'{"id": 16}', b"16", None)]
    assert [evaluate_output(spark, checked, "", sample) for sample in samples] == [
        Evaluation(17, "int"),
        Evaluation(None, "int", "decode: key: not a JSON object but number"),
        Evaluation(None, "int", "decode: field '_key.id' is missing: the record has no key"),
    ]
