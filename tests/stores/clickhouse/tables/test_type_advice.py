"""Every advice on a column's type is followed: the definition that results is valid, and fits the table.

The types are all that the server has, in the forms in which a table can have them.
"""

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.load import load_content
from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.table import Table, require_table
from glassflow_dagster.stores.clickhouse.tables.differences import Difference, differences
from tests.support import definition as v3

WRITTEN = (
    "Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Int128", "Int256", "UInt128",
    "UInt256", "Float32", "Float64", "Decimal(20, 3)", "Decimal32(3)", "Decimal64(3)", "Decimal128(3)",
    "Decimal256(3)", "String", "FixedString(3)", "UUID", "Enum8('a' = 1, 'it\\'s' = 2)", "Enum16('a')", "Enum('a')",
    "IPv4", "IPv6", "Date", "Date32", "DateTime", "DateTime32", "DateTime('Europe/Berlin')", "DateTime64(3, 'UTC')",
    "LowCardinality(Nullable(String))", "Nullable(Int8)", "Array(Array(Nullable(String)))",
    "Map(LowCardinality(String), Array(Int8))", "Tuple(Int8, String)", "Tuple(`a b` Int8, b Nested(c String))", "JSON",
    "JSON(max_dynamic_paths=3, a.b UInt32, `c d` Dynamic, SKIP e)", "Nested(a String, b Array(UInt8))", "Point", "Ring",
    "LineString", "MultiLineString", "MultiPoint", "Polygon", "MultiPolygon", "Array(Point)",
    "SimpleAggregateFunction(sum, UInt64)", "SimpleAggregateFunction(anyLast, Nullable(String))",
    "SimpleAggregateFunction(any, LowCardinality(String))",
    "SimpleAggregateFunction(groupArrayLastArray(5), Array(Int8))",
    "SimpleAggregateFunction(sumMap, Tuple(Array(Int8), Array(Int64)))", "Array(SimpleAggregateFunction(max, Int8))",
    "Nullable(SimpleAggregateFunction(max, Int8))",
)  # fmt: skip
LEFT_OUT = (
    "AggregateFunction(uniq, UInt64)", "AggregateFunction(quantiles(0.5, 0.9), Float64)", "AggregateFunction(count)",
    "AggregateFunction(1, sumMap, Tuple(Array(Int8), Array(Int64)))", "Variant(String, UInt64)", "Dynamic",
    "Dynamic(max_types=3)", "Array(Variant(String, UInt64))", "Tuple(a Dynamic, b Int8)", "Geometry", "BFloat16",
    "Nullable(BFloat16)", "Time", "Time64(3)", "Array(Time)", "QBit(Float32, 8)", "Tuple()", "Map(Array(String), Int8)",
    *(f"Interval{unit}" for unit in ("Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "Day",
                                     "Week", "Month", "Quarter", "Year")),
)  # fmt: skip
# Of these a table has the long form.
SHORT = {"Enum('a')", "DateTime32"}
# No table can have it.
IMPOSSIBLE = {"Nothing"}
FIELDS = {"s": "string", "i": "int", "f": "float", "b": "bool", "a": "array", "m": "map", "x": "any"}
LEAVE_OUT = "leave the column out of the mapping, and every row gets its default"


@pytest.fixture
def database(client: Client, connection: ClickHouseConnection) -> str:
    execute(client, f"CREATE DATABASE {connection.database}")
    return connection.database


def table_of(client: Client, database: str, kind: str) -> Table:
    """Create a table with a column `v` of a type, and return it as the server describes it."""
    client.command(f"DROP TABLE IF EXISTS {database}.t SYNC")
    statement = f"CREATE TABLE {database}.t (id Int32, v {kind}) ENGINE = MergeTree ORDER BY id"
    client.command(statement, settings={"flatten_nested": 0})
    return require_table(client, database, "t")


def definition(field: str, kind: str | None) -> dict[str, Any]:
    """Return a definition that maps a field to `v` as a type; None to leave the column out."""
    mapped = [v3.mapping("id", "Int32"), *([v3.mapping(field, kind, "v")] if kind else [])]
    return v3.definition("types", v3.source("s", v3.fields(id="int", **FIELDS)), v3.sink(mapped))


def with_output(expression: str, kind: str | None) -> dict[str, Any]:
    """Return a definition that maps the value of an expression to `v` as a type."""
    outputs = v3.stateless_transform("s", ("id", "id", ""), ("o", expression, ""))
    return {**definition("o", kind), "transforms": [outputs]}


def stopping(raw: dict[str, Any], table: Table) -> list[Difference]:
    return [found for found in differences(load_content(raw, {}), table) if found.stops]


def advised(text: str) -> str | None:
    """Return the type that an advice says to write; None where the column is to be left out."""
    write = re.search(r"(?:write|as in) (.+?)(?: here| or |$)", text)
    assert LEAVE_OUT in text or write, text
    return write[1] if write else None


def expressions(text: str) -> list[str]:
    """Return the expressions that an advice names, each for its unit where there are several."""
    named = re.search(r"output of a stateless transform, (.+?), and write", text)
    return [each.partition(" of ")[0] for each in named[1].split(" or ")] if named else []


def wrong_mappings() -> Iterator[tuple[str, str]]:
    """Yield a field of each kind, and a type that takes it."""
    takes = {"s": "UUID", "i": "Int16", "f": "Decimal(9, 1)", "b": "Bool", "a": "Array(IPv4)", "m": "Map(String, UUID)"}
    yield from takes.items()
    yield "x", "Date"


def test_every_type_of_the_server_is_among_these(client: Client) -> None:
    names = client.query("SELECT name FROM system.data_type_families WHERE alias_to = ''").result_rows
    tried = set(re.findall(r"\w+", " ".join((*WRITTEN, *LEFT_OUT)))) | IMPOSSIBLE
    assert {name for (name,) in names} - tried == set()


@pytest.mark.parametrize("kind", [*WRITTEN, *LEFT_OUT])
def test_the_advice_of_the_comparison_leads_to_a_definition_that_fits(client: Client, database: str, kind: str) -> None:
    table = table_of(client, database, kind)
    for field, wrong in wrong_mappings():
        for difference in stopping(definition(field, wrong), table):
            kind_of_field = advised(difference.text)
            assert (kind_of_field is None) == (kind in LEFT_OUT)
            for expression in expressions(difference.text):
                assert stopping(with_output(expression, kind_of_field), table) == []
            # Of a field that the column does not take: another field is to be mapped, or the output.
            fitting = field if "; write " in difference.text or kind_of_field is None else "x"
            assert stopping(definition(fitting, kind_of_field), table) == []


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_a_column_that_is_left_out_gets_its_default(client: Client, database: str, kind: str) -> None:
    table_of(client, database, kind)
    block = ArrowBlock(pa.table({"id": pa.array([1], pa.int32())}))
    Inserter(client, 10, print).insert(database, "t", block, Token("a"))
    assert client.query(f"SELECT id FROM {database}.t").result_rows == [(1,)]


@pytest.mark.parametrize(
    "kind",
    [*WRITTEN, *LEFT_OUT, "Nothing", "Nullable(Nothing)", "Object('json')", "SimpleAggregateFunction(sum)", "Nested",
     "Nested(String)", "Point(3)", "FixedString(0)", "Decimal32(77)", "Array", "Map(String)", "Tuple", "Int8(4)",
     "Float16", "nested(a String)", "JSON(a"],
)  # fmt: skip
def test_the_advice_of_validation_leads_to_a_valid_definition(kind: str) -> None:
    try:
        load_content(definition("x", kind), {})
    except DefinitionError as error:
        [problem] = error.problems
        assert kind not in WRITTEN or kind in SHORT
        if "is not a ClickHouse type: " in problem.text:
            return
        if names := re.search(r"use one of (.+)$", problem.text):
            assert "Point" in names[1]
            return
        if meant := re.search(r"did you mean '(.+)'\?$", problem.text):
            assert meant[1] in {re.sub(r"\W.*", "", each) for each in WRITTEN}
            return
        load_content(definition("x", advised(problem.text)), {})
    else:
        assert kind not in LEFT_OUT
