"""Definitions that write to one table are refused unless all of them say that they share it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.shared_tables import Writer, sharing_problems
from tests.support import definition as v3

URL = {"GLASSFLOW_CLICKHOUSE_URL": "http://default:@127.0.0.1:8123"}


def writer(folder: Path, name: str, environment: dict[str, str] | None = None, **sink: Any) -> Writer:
    """Return the writer of a definition in a folder; `sink` sets keys of the sink."""
    content = v3.definition(name, v3.source("s", v3.fields(id="int")), v3.sink({"id": "Int64"}, **sink))
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    return Writer.of(load_pipeline(file, environment or {}))


def problems(*writers: Writer) -> list[list[str]]:
    """Return the problems of each writer beside the others."""
    return [[f"{each.path}: {each.text}" for each in sharing_problems(one, writers)] for one in writers]


def test_both_definitions_are_told_what_the_other_is_and_what_to_do(tmp_path: Path) -> None:
    found = problems(writer(tmp_path, "first"), writer(tmp_path, "second"), writer(tmp_path, "third", table="u"))
    advice = (
        "name another table, or write sink.shared_table: true here and there: the checks then cannot compare the "
        "number of rows"
    )
    assert found == [
        [f"sink.table: d.t is also written by pipeline 'second' ({tmp_path}/second.yaml); {advice}"],
        [f"sink.table: d.t is also written by pipeline 'first' ({tmp_path}/first.yaml); {advice}"],
        [],
    ]


def test_all_must_say_that_they_share_the_table(tmp_path: Path) -> None:
    first, second = (writer(tmp_path, name, shared_table=True) for name in ("first", "second"))
    assert problems(first, second) == [[], []]
    silent = writer(tmp_path, "third")
    [[of_first], [of_second], [of_third]] = problems(first, second, silent)
    assert of_first == of_second
    assert of_first.endswith(
        f"pipeline 'third' ({tmp_path}/third.yaml), which does not say sink.shared_table: true; write it there, or "
        "name another table"
    )
    assert "pipeline 'first'" in of_third
    assert "pipeline 'second'" in of_third
    assert "write sink.shared_table: true here, too" in of_third


def test_an_edit_that_says_what_is_already_so_is_right(tmp_path: Path) -> None:
    current, other = writer(tmp_path, "first"), writer(tmp_path, "second")
    edited = writer(tmp_path, "first", shared_table=True)
    assert sharing_problems(edited, [current, other], current) == []
    # But not one that moves to a table of another pipeline.
    assert sharing_problems(edited, [other], writer(tmp_path, "first", table="u"))
    assert sharing_problems(current, [current, other], current)


def test_the_tables_of_routes_count_and_the_database_of_the_connection(tmp_path: Path) -> None:
    route = {"table": "d.`t`", "filter": "id > 1"}
    routed = writer(tmp_path, "first", table="own", routes=[route])
    [[problem], [_]] = problems(routed, writer(tmp_path, "second"))
    assert problem.startswith("sink.routes[0].table: d.t is also written by pipeline 'second'")


@pytest.mark.parametrize(
    ("connection", "same"),
    [
        (v3.clickhouse(9000, "d") | {"http_port": 8123, "host": "LOCALHOST"}, True),
        (v3.clickhouse(9000, "d") | {"http_port": None}, True),
        (v3.clickhouse(8123, "d") | {"host": "127.0.0.2"}, False),
        (v3.clickhouse(8124, "d"), False),
        (v3.clickhouse(8123, "e"), False),
    ],
)
def test_a_table_of_one_name_on_another_server_is_another_table(
    tmp_path: Path, connection: dict[str, Any], same: bool
) -> None:
    def found(environment: dict[str, str]) -> list[list[str]]:
        first = writer(tmp_path, "first", environment, connection=v3.clickhouse(8123, "d"))
        return problems(first, writer(tmp_path, "second", environment, connection=connection))

    assert any(found({})) is same
    # The environment makes it one server, not one database.
    assert any(found(URL)) is (connection["database"] == "d")


def test_two_files_of_one_pipeline_are_one_writer(tmp_path: Path) -> None:
    one = writer(tmp_path, "first")
    assert problems(one, one) == [[], []]
