"""The published JSON Schema: generated from the model, and consistent with the loader."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from glassflow_dagster.definition.formats.rewrite import rewrite
from glassflow_dagster.definition.schema import definition_schema, schema_text
from tests.definition.joins import joined

PROJECT = Path(__file__).parents[2]
PUBLISHED = PROJECT / "docs" / "pipeline.schema.json"
SHIPPED = sorted((PROJECT / "pipelines").glob("*.yaml"))


def mistakes(definition: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(definition_schema())
    return [error.json_path for error in validator.iter_errors(definition)]


def flights() -> Any:
    return yaml.safe_load((PROJECT / "pipelines" / "flights.yaml").read_text())


def test_the_published_schema_is_the_generated_one() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema_text(), (
        "run: python -m glassflow_dagster.definition.schema > docs/pipeline.schema.json"
    )


def test_it_is_a_json_schema() -> None:
    validator = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    assert [*validator.iter_errors(json.loads(PUBLISHED.read_text(encoding="utf-8")))] == []


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_shipped_definition_names_the_schema_and_is_valid(file: Path) -> None:
    first = file.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../docs/pipeline.schema.json"
    assert (file.parent / first.partition("=")[2]).resolve() == PUBLISHED
    assert mistakes(yaml.safe_load(file.read_text())) == []


def test_a_converted_definition_is_valid() -> None:
    old = {
        "pipeline_id": "orders",
        "source": {
            "type": "kafka",
            "connection_params": {"brokers": ["k:9092"]},
            "topics": [{"name": "orders", "schema_fields": [{"name": "id", "type": "string"}]}],
        },
        "sink": {
            "type": "clickhouse", "host": "ch", "port": 9000, "database": "d", "username": "u", "table": "t",
            "mapping": [{"name": "id", "column_name": "id", "column_type": "uuid"}],
        },
    }  # fmt: skip
    assert mistakes(rewrite(old).definition) == []


def test_a_join_may_be_there_or_switched_off() -> None:
    for join in (joined()["join"], {"enabled": False, "left_source": None}, {"enabled": "${JOIN}"}, None):
        assert mistakes({**joined(), "join": join}) == []
    assert len(mistakes(joined(join__left_source__time_window="2 hours"))) == 1


def test_a_reference_may_stand_for_any_value() -> None:
    definition = flights()
    definition["sink"]["max_batch_size"] = "${ROWS:-5}"
    definition["sink"]["connection_params"] |= {"secure": "${TLS}", "port": "${PORT:-9000}"}
    definition["transforms"][0]["config"]["time_window"] = "${HOURS}h"
    definition["sources"][0]["connection_params"]["protocol"] = "${PROTOCOL}"
    assert mistakes(definition) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sink.max_batch_size", "many"),
        ("sink.max_batch_size", 0),
        ("sink.max_delay_time", "5 minutes"),
        ("sink.connection_params.port", 70000),
        ("sink.tabel", "x"),
        ("sources.0.schema_fields.0.type", "money"),
        ("sources.0.connection_params.protocol", "TLS"),
        ("pipeline_id", "no"),
        ("checks", {"every": "daily"}),
    ],
)
def test_a_mistake_is_marked(path: str, value: Any) -> None:
    definition = place = flights()
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        place = place[part]
    place[last] = value
    assert len(mistakes(definition)) == 1
