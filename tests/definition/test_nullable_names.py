"""Which of the names that a mapping may use are nullable."""

from typing import Any

import pytest

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.nullable_names import nullable_names
from tests.support.definition import definition, sink, source, stateless_transform

FIELDS = [
    {"name": "id", "type": "string"},
    {"name": "note", "type": "string", "required": False},
    {"name": "grade", "type": "int", "required": False, "default": 3},
]


def config(*outputs: tuple[str, str], fields: list[dict[str, Any]] = FIELDS) -> PipelineConfig:
    parsed = definition("orders", source("s", fields), sink({"id": "String"}), stateless_transform("s", *outputs))
    return PipelineConfig.model_validate(parsed)


@pytest.mark.parametrize(
    ("transform_outputs", "names"),
    [
        # A transform without outputs changes nothing. A default replaces a missing value.
        ((), {"note", "_key"}),
        ((("text", " note "), ("id", "id")), {"text", "_key"}),
        ((("note", "note ?? ''"), ("_key", "_key")), {"_key"}),
        ((("_key", "id"),), set()),
    ],
)
def test_optional_fields_kafkas_key_and_what_passes_them_on(
    transform_outputs: tuple[tuple[str, str], ...], names: set[str]
) -> None:
    assert set(nullable_names(config(*transform_outputs))) == names


def test_a_field_of_the_same_name_hides_kafkas_key() -> None:
    assert set(nullable_names(config(fields=[*FIELDS, {"name": "_key", "type": "string"}]))) == {"note"}
