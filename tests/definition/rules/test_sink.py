"""Several tables in a definition: their meaning, and the one-line error for each mistake."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.definition.rules.sink import BOOKKEEPING_TABLES
from glassflow_dagster.stores.bookkeeping.tables import TABLES
from tests.definition.changes import changed

MAPPING = [{"name": "id", "column_name": "id", "column_type": "String"}]
BASE: dict[str, Any] = {
    "version": "v3",
    "pipeline_id": "shop_events",
    "sources": [
        {
            "type": "kafka", "source_id": "events", "topic": "t", "connection_params": {"brokers": ["k:9092"]},
            "schema_fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}],
        }
    ],
    "sink": {
        "type": "clickhouse", "table": "rest", "mapping": MAPPING, "create_table": {"order_by": "id"},
        "connection_params": {"host": "c", "port": 8123, "database": "d", "username": "u", "password": ""},
        "routes": [
            {"table": "few", "filter": "n < 10"},
            {"table": "other.many", "filter": "n > 99", "mapping": [{**MAPPING[0], "column_name": "key"}]},
        ],
    },
}  # fmt: skip


def load(folder: Path, **changes: Any) -> PipelineConfig:
    file = folder / "p.yaml"
    file.write_text(yaml.safe_dump(changed(BASE, **changes)))
    return load_pipeline(file, {})


def test_each_table_has_a_definition_as_if_it_were_the_only_one(tmp_path: Path) -> None:
    config = load(tmp_path)
    tables = config.by_table
    assert [one.sink.table_name for one in tables] == ["d.rest", "d.few", "other.many"]
    assert [one.sink.filter for one in tables] == [None, "n < 10", "n > 99"]
    assert [[m.column_name for m in one.sink.mapping] for one in tables] == [["id"], ["id"], ["key"]]
    assert [one.sink.paths.mapping for one in tables] == ["sink.mapping", "sink.mapping", "sink.routes[1].mapping"]
    assert all(one.sink.create_table == config.sink.create_table and not one.sink.routes for one in tables)
    assert load(tmp_path, sink__routes=None).by_table[0].sink.paths.table == "sink.table"


def test_the_own_table_is_told_from_a_route_s(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert [sink.is_own for sink in config.sink.by_table] == [True, False, False]
    assert {sink.all_tables for sink in (config.sink, *config.sink.by_table)} == {
        (("d", "rest"), ("d", "few"), ("other", "many"))
    }
    assert load(tmp_path, sink__routes=None).sink.is_own


def test_the_names_of_all_bookkeeping_tables_are_known() -> None:
    assert {table.name for table in TABLES} == BOOKKEEPING_TABLES


def test_routes_decide_rows_and_a_table_s_creation_does_not(tmp_path: Path) -> None:
    digest = load(tmp_path).digest
    assert load(tmp_path, sink__routes__0__create_table={"order_by": "id"}).digest == digest
    assert load(tmp_path, sink__routes__0__filter="n < 9").digest != digest
    assert load(tmp_path, sink__routes=[]).digest == load(tmp_path, sink__routes=None).digest


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"sink__routes__1__table": "few"},
            "sink.routes[1].table: d.few is sink.routes[0].table already; join the conditions by ||",
        ),
        (
            {"sink__routes__0__table": "d.rest"},
            "sink.routes[0].table: d.rest is sink.table already; join the conditions by ||, or name another table",
        ),
        (
            {"sink__routes__0__filter": "m < 10"},
            "sink.routes[0].filter: unknown field 'm'; known are _batch_time",
        ),
        ({"sink__routes__0__filter": "n + 1"}, "sink.routes[0].filter: a filter needs true or false"),
        ({"sink__routes__0__filter": None}, "sink.routes[0].filter: is missing; add it"),
        ({"sink__routes__1__mapping": []}, "sink.routes[1].mapping: is empty; list at least one"),
        ({"sink__routes__1__mapping__0__name": "key"}, "sink.routes[1].mapping[0].name: 'key' is not in schema_fields"),
        ({"sink__mapping__0__name": "key"}, "sink.mapping[0].name: 'key' is not in schema_fields"),
        (
            {"sink__routes__0__create_table": {"engine": "Log"}},
            "sink.routes[0].create_table.engine: Log does not recognise a repeated insert",
        ),
        (
            {"sink__routes__0__table": "d.glassflow_ledger"},
            "sink.routes[0].table: 'd.glassflow_ledger' is a table in which this product keeps what it has done",
        ),
        ({"sink__table": "glassflow_losses"}, "sink.table: 'glassflow_losses' is a table in which this product"),
        ({"sink__routes__1__table": "other."}, "sink.routes[1].table: 'other.' has an empty part"),
        ({"sink__table": ".rest"}, "sink.table: '.rest' has an empty part; write TABLE or DATABASE.TABLE"),
        (
            {"sink__create_table__columns": [{"name": "key", "type": "String"}]},
            "'key' is mapped already in sink.routes[1].mapping; give the route of sink.routes[1].table a create_table",
        ),
        ({"sink__filter": "n == 5"}, "sink.unrouted: is missing, since sink.filter may leave events to no table"),
        (
            {"sink__match": "all", "sink__routes": []},
            "sink.match: applies to sink.routes, and there are none: d.rest is the only table; remove it",
        ),
        (
            {"sink__unrouted": "drop"},
            "sink.unrouted: applies to events that sink.filter leaves; without it d.rest takes them all; remove it",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as error:
        load(tmp_path, **changes)
    [line] = str(error.value).splitlines()
    assert problem in line


@pytest.mark.parametrize(
    ("engine", "what"),
    [
        ("Distributed(c, d, rows, rand())", "the table that stores the rows"),
        ("ReplicatedMergeTree('/tables/rest', '{replica}')", "a path in Keeper without {table} or {uuid}"),
    ],
)
def test_an_engine_for_one_table_is_not_taken_over_by_routes(tmp_path: Path, engine: str, what: str) -> None:
    with pytest.raises(DefinitionError) as error:
        load(tmp_path, sink__create_table__engine=engine, sink__routes__1__create_table={"order_by": "key"})
    [line] = str(error.value).splitlines()
    assert "sink.routes[0].create_table: is missing, and that of the sink is for one table only" in line
    assert f"since its engine names {what}; add one here" in line


@pytest.mark.parametrize("engine", ["ReplicatedMergeTree", "ReplicatedMergeTree('/tables/{table}', '{replica}')"])
def test_an_engine_for_any_table_is_taken_over_by_routes(tmp_path: Path, engine: str) -> None:
    assert [one.sink.create_table for one in load(tmp_path, sink__create_table__engine=engine).by_table]


@pytest.mark.parametrize(
    ("field", "column", "expression"),
    [
        ("int", "Bool", "n == 1"),
        ("bool", "Nullable(UInt8)", "n ? 1 : 0"),
        ("int", "Date", "toDate(n) of seconds or fromUnixDay(n) of days since 1970"),
        ("uint", "LowCardinality(String)", "toString(n)"),
        ("string", "Bool", None),
    ],
)
def test_a_type_that_does_not_fit_comes_with_the_expression_that_converts_it(
    tmp_path: Path, field: str, column: str, expression: str | None
) -> None:
    fields = [{"name": "id", "type": "string"}, {"name": "n", "type": field}]
    mapping = [{"name": "n", "column_name": "n", "column_type": column}]
    with pytest.raises(DefinitionError) as error:
        load(tmp_path, sources__0__schema_fields=fields, sink__mapping=mapping, sink__routes=None)
    [line] = str(error.value).splitlines()
    remedy = f"map an output of a stateless transform, {expression}, or change" if expression else "change"
    assert f"but field 'n' is {field}; {remedy} the column's or the field's type" in line
