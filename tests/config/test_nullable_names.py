"""Which names a mapping may use are null at times."""

from typing import Any

import pytest

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.nullable_names import nullable_names
from tests.definition import definition, make, sink, source

FIELDS = [
    {"name": "id", "type": "string"},
    {"name": "note", "type": "string", "required": False},
    {"name": "grade", "type": "int", "required": False, "default": 3},
]


def config(*outputs: tuple[str, str], fields: list[dict[str, Any]] = FIELDS) -> PipelineConfig:
    parsed = definition("orders", source("s", fields), sink({"id": "String"}), make("s", *outputs))
    return PipelineConfig.model_validate(parsed)


@pytest.mark.parametrize(
    ("made", "names"),
    [
        # An empty list of outputs changes nothing. A default stands for what is missing.
        ((), {"note", "_key"}),
        ((("text", " note "), ("id", "id")), {"text", "_key"}),
        ((("note", "note ?? ''"), ("_key", "_key")), {"_key"}),
        ((("_key", "id"),), set()),
    ],
)
def test_optional_fields_kafkas_key_and_what_passes_them_on(made: tuple[tuple[str, str], ...], names: set[str]) -> None:
    assert set(nullable_names(config(*made))) == names


def test_a_field_of_the_same_name_hides_kafkas_key() -> None:
    assert set(nullable_names(config(fields=[*FIELDS, {"name": "_key", "type": "string"}]))) == {"note"}
