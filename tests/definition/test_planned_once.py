"""How often the expressions of a definition are parsed, from loading the file to checking its table."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.checks.keys import key_columns
from glassflow_dagster.definition import stages
from glassflow_dagster.definition.expressions import check
from glassflow_dagster.definition.expressions.parse import parse
from glassflow_dagster.definition.load import all_warnings, load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.nullable_names import nullable_names
from glassflow_dagster.definition.stages import plan_stages
from glassflow_dagster.stores.clickhouse.table import Column, Table
from tests.definition.formats.test_rewrite import V1
from tests.definition.test_load import definition, write


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Record the expressions that are parsed."""
    stages.plan_cached.cache_clear()
    counts: Counter[str] = Counter()

    def counting(text: str) -> Any:
        counts[text] += 1
        return parse(text)

    monkeypatch.setattr(check, "parse", counting)
    return counts


def keep(expression: str) -> dict[str, Any]:
    """Return a filter that keeps events for which the expression is true."""
    return {"type": "filter", "source_id": "scans", "config": {"expression": expression}}


def make(**outputs: str) -> dict[str, Any]:
    """Return a stateless transform with outputs: name -> expression."""
    made = [{"output_name": name, "expression": text} for name, text in outputs.items()]
    return {"type": "stateless", "source_id": "scans", "config": {"transforms": made}}


def checked(config: PipelineConfig) -> None:
    """Call everything that a check of the table derives from the definition's expressions."""
    columns = {
        mapping.column_name: Column(mapping.parsed_type, "", mapping.column_type) for mapping in config.sink.mapping
    }
    table = Table("ops", "scans", "MergeTree", "MergeTree", columns, rows=0, ttl=False)
    for _ in range(3):
        key_columns(config, table)
        nullable_names(config)
        plan_stages(config)


@pytest.mark.parametrize("environment", [{}, {"GLASSFLOW_KAFKA_BROKERS": "b:1"}], ids=["own", "other servers"])
@pytest.mark.parametrize(
    ("transforms", "expressions"),
    [
        ([keep("kg > 1"), make(id="id", kg="kg * 2"), keep("kg < 90")], ["kg > 1", "id", "kg * 2", "kg < 90"]),
        ([make(id="id", kg="kg + 1"), keep("kg > 7")], ["id", "kg + 1", "kg > 7"]),
    ],
    ids=["in their order", "filtered first"],
)
def test_a_load_and_a_check_parse_each_expression_once(
    tmp_path: Path,
    parsed: Counter[str],
    transforms: list[dict[str, Any]],
    expressions: list[str],
    environment: dict[str, str],
) -> None:
    config = load_pipeline(write(tmp_path, definition(transforms=transforms)), environment)
    assert all_warnings(config)
    checked(config)
    assert parsed == Counter(expressions)


def test_an_older_filter_is_parsed_once_as_written_and_once_as_v3_has_it(tmp_path: Path, parsed: Counter[str]) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps({**V1, "filter": {"enabled": True, "expression": "kwh > 7"}}), encoding="utf-8")
    checked(load_pipeline(file, {}))
    assert (parsed["kwh > 7"], parsed["not (kwh > 7)"]) == (1, 1)
