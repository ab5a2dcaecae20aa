"""Blocks in RowBinary: what ClickHouse reads of them, and what it says when the table was altered."""

import json
import socket
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.clickhouse.errors import InsertRefused
from glassflow_dagster.stores.clickhouse.inserts.block import RowBinaryBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter, insert_settings
from glassflow_dagster.stores.clickhouse.inserts.rows_as_json import read_as_json
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import execute

pytestmark = pytest.mark.servers

COLUMNS = (("a b", "UInt16"), ("e", "Enum8('x' = 1, 'it\\'s' = 2)"), ("j", "JSON"))


def row(number: int) -> bytes:
    return number.to_bytes(2, "little") + b"\2" + b'\x07{"n":1}'


def block(numbers: list[int]) -> RowBinaryBlock:
    """Return rows in two chunks, the first of which is a part of a longer array."""
    rows = pa.array([b"not sent", *map(row, numbers)], pa.binary())
    return RowBinaryBlock(COLUMNS, pa.chunked_array([rows.slice(1, 2), rows.slice(3)]))


@pytest.fixture
def inserter(client: Client, connection: ClickHouseConnection) -> Inserter:
    execute(client, f"CREATE DATABASE {connection.database}")
    columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
    execute(
        client,
        f"CREATE TABLE {connection.database}.t ({columns}) ENGINE = MergeTree ORDER BY `a b` "
        "SETTINGS non_replicated_deduplication_window = 100",
    )
    return Inserter(client, 10, print)


def written(inserter: Inserter, database: str) -> list[int]:
    rows = inserter.client.query(f"SELECT `a b`, e, j.n FROM {database}.t ORDER BY 1").result_rows
    assert {(name, number) for _, name, number in rows} == {("it's", 1)}
    return [number for number, _, _ in rows]


def test_whole_blocks_and_parts_of_them_are_what_the_table_gets(
    inserter: Inserter, connection: ClickHouseConnection
) -> None:
    numbers = [*range(5), 65535]
    whole = block(numbers)
    inserter.insert(connection.database, "t", whole.slice(1, 3), Token("slice"))
    inserter.insert(connection.database, "t", whole.take([5, 0]), Token("take"))
    assert written(inserter, connection.database) == [0, 1, 2, 3, 65535]
    inserter.insert(connection.database, "t", whole, Token("whole"))
    assert written(inserter, connection.database) == sorted([0, 1, 2, 3, 65535, *numbers])


def test_a_row_can_be_shown_as_json(inserter: Inserter) -> None:
    rows = [json.loads(text) for text in read_as_json(inserter.client, block([7, 8]))]
    assert rows == [{"a b": number, "e": "it's", "j": '{"n":1}'} for number in (7, 8)]


def test_a_row_can_be_shown_that_the_server_cannot_read(inserter: Inserter) -> None:
    columns = (("j", "Tuple(x Nullable(JSON(a UInt8)), y Array(String))"),)
    value = b'{"a":"not a number\\n"}'
    whole = RowBinaryBlock(columns, pa.chunked_array([[b"\0" + bytes([len(value)]) + value + b"\0"]] * 2))
    with pytest.raises(DatabaseError, match="UInt8"):
        inserter.client.command("SELECT CAST('{\"a\":\"not a number\"}', 'JSON(a UInt8)')")
    rows = [json.loads(text) for text in read_as_json(inserter.client, whole)]
    assert rows == [{"j": {"x": value.decode(), "y": []}}] * 2


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_a_body_that_ends_early_between_two_rows_is_not_inserted(
    inserter: Inserter, connection: ClickHouseConnection, *, chunked: bool
) -> None:
    """RowBinary has no end mark, so the server must see by the request that rows are missing."""
    settings = {name: str(value) for name, value in insert_settings(inserter.client, Token("a"), 3).items()}
    query = f"INSERT INTO {connection.database}.t FORMAT RowBinaryWithNamesAndTypes"
    target = f"/?{urlencode({'query': query, **settings})}"
    part, whole = block([1, 2]).body(), block([1, 2, 3]).body()
    assert whole.startswith(part)
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(whole)}"
    body = f"{len(part):x}\r\n".encode() + part + b"\r\n" if chunked else part
    port = connection.http_port or connection.port
    with socket.create_connection(("127.0.0.1", port)) as sending:
        sending.sendall(f"POST {target} HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode() + body)
        sending.shutdown(socket.SHUT_WR)
        answer = sending.recv(65536)
    assert b"200 OK" not in answer.split(b"\r\n")[0], answer
    inserter.insert(connection.database, "t", block([1, 2, 3]), Token("a"))
    assert written(inserter, connection.database) == [1, 2, 3]


def test_a_column_that_has_another_type_now_stops_the_insert_and_refuses_no_row(
    inserter: Inserter, connection: ClickHouseConnection
) -> None:
    execute(inserter.client, f"ALTER TABLE {connection.database}.t MODIFY COLUMN j String")
    with pytest.raises(InsertRefused, match=r"accepts no rows: Type of 'j' must be String, not JSON"):
        inserter.insert(connection.database, "t", block([1, 2, 3]), Token("a"))
