"""Which names a mapping may use are null at times."""

from typing import Any

import pytest

from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.stages import nullable_names

FIELDS = [
    {"name": "id", "type": "string"},
    {"name": "note", "type": "string", "required": False},
    {"name": "grade", "type": "int", "required": False, "default": 3},
]


def config(*outputs: dict[str, str], fields: list[dict[str, Any]] = FIELDS) -> PipelineConfig:
    return PipelineConfig.model_validate({
        "pipeline_id": "orders",
        "sources": [
            {
                "type": "kafka", "source_id": "s", "topic": "t", "connection_params": {"brokers": ["b"]},
                "schema_fields": fields,
            }
        ],
        "transforms": [{"type": "stateless", "source_id": "s", "config": {"transforms": [*outputs]}}],
        "sink": {
            "type": "clickhouse", "table": "t",
            "connection_params": {"host": "h", "port": 1, "database": "d", "username": "u"},
            "mapping": [{"name": "id", "column_name": "id", "column_type": "String"}],
        },
    })  # fmt: skip


def output(name: str, expression: str) -> dict[str, str]:
    return {"output_name": name, "expression": expression, "output_type": "string"}


@pytest.mark.parametrize(
    ("made", "names"),
    [
        # An empty list of outputs changes nothing. A default stands for what is missing.
        ((), {"note", "_key"}),
        ((output("text", " note "), output("id", "id")), {"text", "_key"}),
        ((output("note", "note ?? ''"), output("_key", "_key")), {"_key"}),
        ((output("_key", "id"),), set()),
    ],
)
def test_optional_fields_kafkas_key_and_what_passes_them_on(made: tuple[dict[str, str], ...], names: set[str]) -> None:
    assert set(nullable_names(config(*made))) == names


def test_a_field_of_the_same_name_hides_kafkas_key() -> None:
    assert set(nullable_names(config(fields=[*FIELDS, {"name": "_key", "type": "string"}]))) == {"note"}
