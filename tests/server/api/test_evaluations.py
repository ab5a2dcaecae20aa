"""Filters, transforms and definitions tried by HTTP."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.server.api.preview import preview as preview_records
from glassflow_dagster.stores.kafka.records import Record
from tests.server.api.conftest import Api, deduplicating
from tests.support import definition as v3

FIELDS = [{"field_name": "amount", "field_type": "int64"}, {"field_name": "user.name", "field_type": "string"}]


def test_a_filter_is_checked(api: Api) -> None:
    path = "/api/v1/filter/validate"
    valid = api.post(path, {"expression": 'amount > 18 and user.name != ""', "fields": FIELDS})
    assert (valid.status_code, valid.json()) == (200, {})
    for expression, problem in (
        ("amuont > 18", "  amuont > 18\n  ^^^^^^"), ("amount + 5", "needs true or false"), ("amount >>>> 18", "^"),
        ("(" * 5000, ""),
    ):  # fmt: skip
        answer = api.post(path, {"expression": expression, "fields": FIELDS})
        body = answer.json()
        assert (answer.status_code, body["code"]) == (400, "validation_error")
        assert body["message"] == "Filter expression validation failed"
        assert problem in body["details"]["error"]
    wrong_type = api.post(path, {"expression": "a > 1", "fields": [{"field_name": "a", "field_type": "integre"}]})
    assert wrong_type.status_code == 400
    assert api.post(path, {"expression": "", "fields": []}).status_code == 422


@pytest.fixture
def trying(api: Api, spark: SparkSession) -> Api:
    """Return an API that tries in the session which all tests share."""
    api.services.session.spark = spark
    return api


def test_a_filter_is_tried_on_a_sample(trying: Api) -> None:
    path = "/api/v1/filter/evaluate"
    for sample, expected in (({"n": 5}, {"passes": True}), ({"n": 1}, {"passes": False})):
        assert trying.post(path, {"expression": "n > 2", "sample": sample}).json() == expected
    body = {"expression": "n > 2", "sample": {"n": "5"}, "fields": [{"field_name": "n", "field_type": "int"}]}
    assert "n" in trying.post(path, body).json()["dead_letter"]


def test_a_transform_is_tried_on_a_sample_as_in_glassflow(trying: Api) -> None:
    path = "/api/v1/transform/expression/evaluate"
    outputs = [
        {"expression": "upper(name)", "output_name": "loud", "output_type": "string"},
        {"expression": "n + 1", "output_name": "next", "output_type": "int"},
        {"expression": "tags", "output_name": "tags", "output_type": ""},
    ]
    body = {
        "type": "expr_lang_transform",
        "config": {"transform": outputs},
        "sample": {"name": "a", "n": 1, "tags": ["x"]},
    }
    assert trying.post(path, body).json() == {"loud": "A", "next": 2, "tags": ["x"]}
    failing = {**body, "config": {"transforms": [{"expression": "int(name)", "output_name": "n"}]}}
    answer = trying.post(path, failing)
    assert (answer.status_code, answer.json()["code"]) == (400, "transformation_error")
    assert "int(name)" in answer.json()["details"]["error"]
    unknown = trying.post(path, {**body, "type": "other"})
    assert (unknown.status_code, unknown.json()["code"]) == (400, "invalid_transformation_type")


def preview(api: Api, definition: dict[str, Any], samples: list[Any], **more: Any) -> list[dict[str, Any]]:
    answer = api.post("/api/v1/pipeline/preview", {"definition": definition, "samples": samples, **more})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    assert [each.pop("offset") for each in found] == [*range(len(samples))]
    assert {each.pop("partition") for each in found} <= {0}
    return found


def test_a_definition_is_tried_on_samples(trying: Api) -> None:
    definition = deduplicating()
    definition["transforms"].append(v3.filter_transform("orders", "amount < 100"))
    samples = [
        {"order_id": "a", "amount": 1}, {"order_id": "a", "amount": 2}, {"order_id": "b", "amount": 100},
        {"order_id": "c"}, "no json", {"order_id": "b", "amount": 2**40},
    ]  # fmt: skip
    definition["sink"]["mapping"][1]["column_type"] = "Int32"
    definition["transforms"][1]["config"]["expression"] = "amount != 100"
    first, second, third, missing, no_json, too_large = preview(trying, definition, samples)
    assert first == {
        "outcome": "row", "rows": [{"table": "d.orders", "columns": {"order_id": "a", "amount": 1}}],
    }  # fmt: skip
    assert second == {"outcome": "duplicate", "key": {"order_id": "a"}}
    assert third == {"outcome": "filtered"}
    assert (missing["outcome"], missing["stage"]) == ("dead_letter", "decode")
    assert "amount" in missing["reason"]
    assert (no_json["outcome"], no_json["stage"]) == ("dead_letter", "decode")
    assert (too_large["outcome"], too_large["stage"]) == ("dead_letter", "mapping")
    assert preview(trying, definition, []) == []
    assert not list(trying.folder.glob("*"))


def test_transforms_and_tables_are_tried(trying: Api) -> None:
    definition = deduplicating()
    definition["transforms"] = [
        v3.stateless_transform("orders", ("id", "upper(order_id)"), ("big", "amount > 10", "bool"))
    ]
    columns = [v3.mapping("id", "String"), v3.mapping("big", "Bool")]
    definition["sink"]["mapping"] = columns
    definition["sink"]["routes"] = [{"table": "large", "filter": "big"}]
    samples = [{"order_id": "a", "amount": 1}, {"order_id": "b", "amount": 11}]
    rows = [each["rows"] for each in preview(trying, definition, samples)]
    assert rows == [
        [{"table": "d.orders", "columns": {"id": "A", "big": False}}],
        [{"table": "d.large", "columns": {"id": "B", "big": True}}],
    ]
    definition["sink"]["match"] = "all"
    rows = [each["rows"] for each in preview(trying, definition, samples)]
    assert [[row["table"] for row in each] for each in rows] == [["d.orders"], ["d.large"]]


def test_records_of_a_topic_are_tried_whatever_their_timestamps_are(spark: SparkSession) -> None:
    definition = deduplicating()
    definition["sink"]["mapping"][1] = v3.mapping("_timestamp", "Float64")
    config = PipelineConfig.model_validate(definition)
    times = [1_700_000_000_000 * unit for unit in (1, 1000, 1_000_000)]
    records = [
        Record("orders", 0, offset, time, None, b'{"order_id":"%d","amount":1}' % offset, ())
        for offset, time in enumerate(times)
    ]
    found = preview_records(spark, config, config.source, records)
    assert [each["rows"][0]["columns"]["_timestamp"] for each in found] == [time / 1000 for time in times]


def test_a_joins_source_is_tried_up_to_the_join(trying: Api) -> None:
    sources = [v3.source(name, v3.fields(id="string", n="int")) for name in ("orders", "users")]
    definition = v3.definition(
        "joined", sources, v3.sink({"id": "String", "n": "Int64"}), v3.filter_transform("users", "n > 1"),
        join={
            "enabled": True, "type": "temporal",
            "left_source": {"source_id": "orders", "key": "id", "time_window": "1h"},
            "right_source": {"source_id": "users", "key": "id", "time_window": "1h"},
            "output_fields": [{"source_id": "orders", "name": "id"}, {"source_id": "users", "name": "n"}],
        },
    )  # fmt: skip
    samples = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    left = preview(trying, definition, samples)
    assert left == [{"outcome": "to_join", "fields": sample} for sample in samples]
    right = preview(trying, definition, samples, source_id="users")
    assert right == [{"outcome": "filtered"}, {"outcome": "to_join", "fields": {"id": "b", "n": 2}}]
    body = {"definition": definition, "samples": [], "source_id": "other"}
    assert trying.post("/api/v1/pipeline/preview", body).status_code == 404


@pytest.mark.parametrize("change", [{"sources": []}, {"misspelt": 1}])
def test_an_invalid_definition_is_not_tried(api: Api, change: dict[str, Any]) -> None:
    answer = api.post("/api/v1/pipeline/preview", {"definition": deduplicating(**change), "samples": [{}]})
    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_the_newest_records_of_the_topic_are_tried_if_there_are_no_samples(api: Api) -> None:
    answer = api.post("/api/v1/pipeline/preview", {"definition": deduplicating()})
    assert answer.status_code == 422
    assert "do not answer" in answer.json()["message"]


def test_samples_are_limited(api: Api) -> None:
    body = {"definition": deduplicating(), "samples": [{}] * 1001}
    answer = api.post("/api/v1/pipeline/preview", body)
    assert answer.status_code == 422
    assert json.loads(answer.text)["errors"][0]["field"] == "body.samples"
