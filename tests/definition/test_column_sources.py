"""Which fields of the event each column of the table is computed from."""

from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.definition.column_sources import column_sources
from glassflow_dagster.definition.load import load_written
from tests.support.definition import clickhouse, definition, fields, filter_transform, sink, source, stateless_transform

FIELDS = fields(id="string", price="float", count="int", note="string")


def sources(columns: dict[str, str], *transforms: Any, names: dict[str, str] | None = None) -> dict[str, set[str]]:
    target = sink(columns, clickhouse(), table="t")
    for mapping in target["mapping"]:
        mapping["name"] = (names or {}).get(mapping["column_name"], mapping["column_name"])
    config = load_written(definition("orders", source("orders", FIELDS), target, *transforms), environment={})
    return {column: set(found) for column, found in column_sources(config).items()}


def test_a_mapped_field_is_its_own_source_and_metadata_have_none() -> None:
    columns = {"id": "String", "cost": "Float64", "at": "DateTime64(3)"}
    found = sources(columns, names={"cost": "price", "at": "_timestamp"})
    assert found == {"id": {"id"}, "cost": {"price"}, "at": set()}


def test_an_expression_has_all_fields_that_it_reads_and_a_filter_none() -> None:
    found = sources(
        {"id": "String", "total": "Float64", "fixed": "String"},
        filter_transform("orders", 'note == "x"'),
        stateless_transform(
            "orders", ("id", "upper(id)"), ("total", "let n = count; price * n", "float64"), ("fixed", '"x"')
        ),
    )
    assert found == {"id": {"id"}, "total": {"price", "count"}, "fixed": set()}


def test_of_two_transforms_the_fields_reach_through_the_outputs_between() -> None:
    found = sources(
        {"label": "String", "id": "String"},
        stateless_transform("orders", ("id", "note"), ("total", "price * count", "float64")),
        stateless_transform("orders", ("label", "id + toString(total)"), ("id", "id")),
    )
    assert found == {"label": {"note", "price", "count"}, "id": {"note"}}


@pytest.mark.parametrize("file", sorted(Path("pipelines").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_pipeline_has_a_source_for_each_column_but_the_batch_time(file: Path) -> None:
    from glassflow_dagster.definition.load import load_pipeline

    found = column_sources(load_pipeline(file, {}))
    assert {column for column, names in found.items() if not names} <= {"ingested_at", "joined_at"}
