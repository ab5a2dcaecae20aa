"""Columns whose types are names for other types, and a Nested in both forms: from the record to the table's value."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from pyspark.sql import SparkSession

from glassflow_dagster.definition.load import load_content
from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.clickhouse.errors import RowsRefused
from glassflow_dagster.stores.clickhouse.inserts.block import RowBinaryBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.rows_as_json import read_as_json
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.table import find_table
from glassflow_dagster.stores.clickhouse.tables.differences import differences
from glassflow_dagster.stream.query import map_records
from tests.stores.clickhouse.conftest import client, connection  # noqa: F401 - fixtures
from tests.support import definition as v3

TOPIC = "types"
RECORD = (
    "topic string, topic_rank int, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key string, value binary>>, batch_time timestamp"
)
NOW = datetime(2026, 1, 31, tzinfo=UTC)
Columns = Mapping[str, str] | Sequence[dict[str, Any]]
# Events, fields -> types, the mapping, and transforms -> the block of the events' rows.
Written = Callable[..., RowBinaryBlock]


@pytest.fixture
def write(spark: SparkSession, client: Client, connection: ClickHouseConnection) -> Written:  # noqa: F811
    """Return a function that maps events and inserts their rows into the table `t`, as a driver does."""

    def written(
        events: Sequence[Any], fields: dict[str, Any], columns: Columns, *transforms: dict[str, Any]
    ) -> RowBinaryBlock:
        declared = [{"name": name, **(kind if isinstance(kind, dict) else {"type": kind})}
                    for name, kind in fields.items()]  # fmt: skip
        sink = v3.sink(columns, v3.clickhouse(connection.port, connection.database))
        definition = v3.definition("types", v3.source(TOPIC, declared), sink, *transforms)
        config = load_content(definition, {})
        table = find_table(client, connection.database, "t")
        assert table
        assert [str(found) for found in differences(config, table) if found.stops] == []
        records = [
            (TOPIC, 0, 0, offset, NOW, None, json.dumps(event).encode(), None, NOW)
            for offset, event in enumerate(events)
        ]
        mapped = map_records(spark.createDataFrame(records, RECORD), config, [table], "").collect()
        assert [row["error"] for row in mapped if row["error"]] == []
        kinds = tuple((m.column_name, table.columns[m.column_name].text) for m in config.sink.mapping)
        rows = [bytes(row["row"]) for row in mapped]
        block = RowBinaryBlock(kinds, pa.chunked_array([pa.array(rows, pa.binary())]))
        Inserter(client, 10, print).insert(connection.database, "t", block, Token("a"))
        return block

    return written


@pytest.fixture
def create(client: Client, connection: ClickHouseConnection) -> Callable[..., None]:  # noqa: F811
    """Return a function that creates the table `t` of these columns."""

    def created(columns: str, engine: str = "MergeTree ORDER BY tuple()", **settings: int) -> None:
        client.command(f"CREATE DATABASE {connection.database}")
        client.command(f"CREATE TABLE {connection.database}.t ({columns}) ENGINE = {engine}", settings=settings)

    return created


@pytest.fixture
def query(client: Client, connection: ClickHouseConnection) -> Callable[[str], list[Any]]:  # noqa: F811
    """Return a function that selects columns of `t` (what follows SELECT)."""

    def selected(columns: str) -> list[Any]:
        head, _, tail = columns.partition(" ORDER BY ")
        order = f" ORDER BY {tail}" if tail else ""
        return [*client.query(f"SELECT {head} FROM {connection.database}.t{order}").result_rows]

    return selected


def test_the_arguments_of_an_aggregate_function_are_merged(
    create: Callable[..., None], write: Written, query: Callable[[str], list[Any]], client: Client,  # noqa: F811
    connection: ClickHouseConnection,  # noqa: F811
) -> None:  # fmt: skip
    create(
        "k String, n SimpleAggregateFunction(sum, UInt64), s SimpleAggregateFunction(anyLast, Nullable(String)), "
        "mx SimpleAggregateFunction(max, Int64), u AggregateFunction(uniq, UInt64)",
        "AggregatingMergeTree ORDER BY k",
    )
    events = [{"k": "a", "n": 1, "s": "x"}, {"k": "a", "n": 2, "s": None}]
    mapping = [v3.mapping("k", "String"), v3.mapping("n", "UInt64"), v3.mapping("s", "String"),
               v3.mapping("n", "Int64", "mx")]  # fmt: skip
    write(events, {"k": "string", "n": "uint", "s": {"type": "string", "required": False}}, mapping)
    client.command(f"OPTIMIZE TABLE {connection.database}.t FINAL")
    assert query("k, n, s, mx, finalizeAggregation(u)") == [("a", 3, "x", 2, 0)]


def test_aliases_of_a_type_name_it_in_the_definition_and_in_the_table(
    create: Callable[..., None], write: Written, query: Callable[[str], list[Any]]
) -> None:
    create(
        "a BIGINT, b BOOLEAN, c VARCHAR(9), d datetime64(3, 'UTC'), e INT UNSIGNED, f ENUM('x' = 7), "
        "g DOUBLE PRECISION, h TIMESTAMP('UTC'), i Array(TINYINT), j DEC(9, 2)"
    )
    # Field -> its value, its type, and the column's type in the definition.
    values: dict[str, tuple[Any, str, str]] = {
        "a": (1, "int", "BigInt"), "b": (True, "bool", "bool"), "c": ("x", "string", "TEXT"),
        "d": ("2024-10-28", "string", "DateTime(3)"), "e": (2**32 - 1, "int", "INTEGER(10) UNSIGNED"),
        "f": ("x", "string", "enum('x' = 7)"), "g": (0.5, "float", "DOUBLE"), "h": (0, "int", "DateTime32"),
        "i": ([-1], "array", "Array(INT1)"), "j": ("1.5", "string", "numeric(9, 2)"),
    }  # fmt: skip
    event, fields, columns = ({name: parts[i] for name, parts in values.items()} for i in range(3))
    write([event], fields, columns)
    assert query("toString(tuple(*))") == [
        ("(1,true,'x','2024-10-28 00:00:00.000',4294967295,'x',0.5,'1970-01-01 00:00:00',[-1],1.5)",)
    ]


# Column -> its type, and the expression for it, as docs/guides/definitions.md has them ("Conversions").
CONVERSIONS = {
    "day": ("Date", "at[:10]"), "utc_day": ("Date", "toDate(date(at).Unix())"), "of_seconds": ("Date32", "toDate(s)"),
    "ms": ("DateTime64(3, 'UTC')", "fromUnixMilli(ms)"), "us": ("DateTime64(6, 'UTC')", "fromUnixMicro(us)"),
    "ns": ("DateTime64(9, 'UTC')", "fromUnixNano(ns)"), "of_days": ("Date32", "fromUnixDay(days)"),
    "truth": ("Bool", "one == 1"), "number": ("UInt8", "truth ? 1 : 0"), "written": ("String", "toString(s)"),
    "braces": ("UUID", 'trim(braces, "{}")'), "urn": ("UUID", 'trimPrefix(urn, "urn:uuid:")'),
    "nothing": ("Int64", "nothing ?? 0"), "none": ("Nullable(DateTime64(6))", "fromUnixMicro(nothing)"),
    "tags": ("Array(String)", "tags ?? []"),
}  # fmt: skip


def test_the_expressions_of_the_guide_fill_columns_of_other_kinds(
    create: Callable[..., None], write: Written, query: Callable[[str], list[Any]]
) -> None:
    create(", ".join(f"{name} {kind}" for name, (kind, _) in CONVERSIONS.items()))
    id_text = "0b54e1c0-0000-4000-8000-000000000001"
    event = {
        "at": "2024-10-28T23:00:05-02:00", "s": 86_400, "ms": 1_730_109_605_123, "us": -1, "days": -703,
        "ns": 1_730_109_605_123_456_789, "one": 1, "truth": True, "braces": f"{{{id_text}}}",
        "urn": f"urn:uuid:{id_text}",
    }  # fmt: skip
    kinds = {bool: "bool", int: "int", str: "string"}
    fields = {name: kinds[type(value)] for name, value in event.items()} | {
        name: {"type": kind, "required": False} for name, kind in (("nothing", "int"), ("tags", "array"))
    }
    outputs = v3.stateless_transform(
        TOPIC, *((name, text, "array" if name == "tags" else "") for name, (_, text) in CONVERSIONS.items())
    )
    write([event], fields, {name: kind for name, (kind, _) in CONVERSIONS.items()}, outputs)
    row = (
        "('2024-10-28','2024-10-29','1970-01-02','2024-10-28 10:00:05.123','1969-12-31 23:59:59.999999',"
        f"'2024-10-28 10:00:05.123456789','1968-01-29',true,1,'86400','{id_text}','{id_text}',0,NULL,[])"
    )
    assert query("toString(tuple(*))") == [(row,)]


NESTED = {"id": "int", "ports": "array"}
PORTS = [{"host": "a", "port": 1}, {"host": "b", "port": 2, "other": 3}]


@pytest.mark.parametrize(
    "kind", ["Array(Tuple(host String, port Int64))", "Nested(host String, port Int64)", "Array(Tuple(String, Int64))"]
)
def test_a_nested_of_one_piece_is_an_array_of_tuples(
    create: Callable[..., None], write: Written, query: Callable[[str], list[Any]], client: Client,  # noqa: F811
    kind: str,
) -> None:  # fmt: skip
    create("id Int32, ports Nested(host String, port Int64)", flatten_nested=0)
    events = [{"id": 1, "ports": PORTS}, {"id": 2, "ports": []}]
    block = write(events, NESTED, {"id": "Int32", "ports": kind})
    assert query("id, toString(ports) ORDER BY id") == [(1, "[('a',1),('b',2)]"), (2, "[]")]
    # A row can also be read beside the table, as for the search after a restart, and for a dead letter.
    assert [json.loads(row)["id"] for row in read_as_json(client, block)] == [1, 2]


FLATTENED = [
    v3.mapping("id", "Int32"),
    v3.mapping("hosts", "Array(String)", "ports.host"),
    v3.mapping("numbers", "Array(Int64)", "ports.port"),
]


def test_a_flattened_nested_is_filled_by_its_own_columns(
    create: Callable[..., None], write: Written, query: Callable[[str], list[Any]]
) -> None:
    create("id Int32, ports Nested(host String, port Int64)")
    outputs = v3.stateless_transform(
        TOPIC, ("id", "id", ""), ("hosts", "map(ports, .host)", ""), ("numbers", "map(ports, .port)", "")
    )
    write([{"id": 1, "ports": PORTS}], NESTED, FLATTENED, outputs)
    assert query("id, ports.host, ports.port") == [(1, ["a", "b"], [1, 2])]


def test_arrays_of_unequal_length_are_refused_as_the_values_of_a_row(
    create: Callable[..., None], write: Written, query: Callable[[str], list[Any]]
) -> None:
    create("id Int32, ports Nested(host String, port Int64)")
    fields = {"id": "int", "hosts": "array", "numbers": "array"}
    with pytest.raises(RowsRefused) as error:
        write([{"id": 1, "hosts": ["a"], "numbers": []}], fields, FLATTENED)
    assert error.value.none_inserted
    assert query("id") == []


SHAPES = {
    "Point": [1.5, -2],
    "Ring": [[0, 0], [1, 0.5]],
    "LineString": [],
    "MultiPoint": [[1, 2]],
    "MultiLineString": [[[0, 0], [1, 1]], []],
    "Polygon": [[[0, 0], [9, 0], [9, 9]]],
    "MultiPolygon": [[[[0, 0], [9, 0], [9, 9]]], []],
    "Array(Point)": [[1, 2], [3, 4]],
    "Tuple(at Point, n Int8)": [[1, 2], 3],
}


@pytest.mark.parametrize("by_name", [True, False])
def test_a_shape_is_written_as_its_tuples_and_arrays(
    create: Callable[..., None], write: Written, query: Callable[[str], list[Any]], client: Client,  # noqa: F811
    by_name: bool,
) -> None:  # fmt: skip
    names = [f"v{number}" for number in range(len(SHAPES))]
    create(", ".join(f"{name} {kind}" for name, kind in zip(names, SHAPES, strict=True)))
    spelled = {
        "Point": "Tuple(Float64, Float64)", "Ring": "Array(Tuple(Float64, Float64))", "LineString": "Array(Point)",
        "Polygon": "Array(Array(Tuple(Float64, Float64)))", "Array(Point)": "Array(Tuple(Float64, Float64))",
        "Tuple(at Point, n Int8)": "Tuple(at Tuple(Float64, Float64), n Int8)",
    }  # fmt: skip
    kinds = [kind if by_name else spelled.get(kind, kind) for kind in SHAPES]
    event = dict(zip(names, SHAPES.values(), strict=True))
    block = write([event], dict.fromkeys(names, "array"), dict(zip(names, kinds, strict=True)))
    [row] = query(", ".join(f"toJSONString({name})" for name in names))
    shown = [json.loads(value) for value in row]
    assert shown[:-1] == list(SHAPES.values())[:-1]
    assert shown[-1] == {"at": [1, 2], "n": 3}
    assert list(json.loads(read_as_json(client, block)[0]).values()) == shown
