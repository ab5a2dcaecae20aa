"""An unchanged clickhouse-connect client against the front, and what curl would send."""

import gzip
import io
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from urllib.parse import urlencode

import lz4.frame
import pandas as pd
import pyarrow as pa
import pytest
from backports import zstd
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError, StreamFailureError

from glassflow_dagster.local.ports import free_port
from tests.local.conftest import Server

pytestmark = pytest.mark.servers

_numbers = count()


@pytest.fixture
def table(client: Client) -> Iterator[str]:
    """An empty table (id Int64, name String) that knows insert tokens."""
    name = f"t{next(_numbers)}"
    window = "SETTINGS non_replicated_deduplication_window = 100"
    client.command(f"CREATE TABLE {name} (id Int64, name String) ENGINE = MergeTree ORDER BY id {window}")
    yield name
    client.command(f"DROP TABLE {name}")


def _rows(number: int, start: int = 0) -> pa.Table:
    ids = range(start, start + number)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"name-{i}" for i in ids]})


def _http(
    server: Server,
    parameters: Mapping[str, str],
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Mapping[str, str], bytes]:
    request = urllib.request.Request(f"{server.url}?{urlencode(parameters)}", body, dict(headers or {}))  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # our own address
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


# Queries


def test_parameters_are_typed(client: Client) -> None:
    query = "SELECT {x:Int32} + 1, {s:String}, {a:Array(String)}, {n:Nullable(String)}, {d:Date}"
    values = {
        "x": 41,
        "s": "it's\ta \\ tab\n",
        "a": ["a'b", "ü"],
        "n": None,
        "d": datetime(2024, 2, 29, tzinfo=UTC).date(),
    }
    assert client.query(query, parameters=values).result_rows == [
        (42, "it's\ta \\ tab\n", ["a'b", "ü"], None, values["d"]),
    ]


def test_parameters_too_long_for_a_url_arrive(client: Client) -> None:
    assert client.query("SELECT length({s:String})", parameters={"s": "x" * 200_000}).result_rows == [(200_000,)]


def test_identifiers_can_be_parameters(client: Client, table: str) -> None:
    assert client.query("SELECT count() FROM {t:Identifier}", parameters={"t": table}).result_rows == [(0,)]


def test_a_setting_holds_for_its_query_only(client: Client) -> None:
    query = "SELECT getSetting('max_block_size')"
    default = client.query(query).result_rows
    assert client.query(query, settings={"max_block_size": 123}).result_rows == [(123,)]
    assert client.query(query).result_rows == default


def test_a_result_without_rows_is_read(client: Client, table: str) -> None:
    assert client.query(f"SELECT id, name FROM {table} LIMIT 0").column_names == ("id", "name")
    assert client.query(f"SELECT id, name FROM {table}").result_rows == []
    assert client.query_arrow(f"SELECT id, name FROM {table}").column_names == ["id", "name"]
    with client.query_row_block_stream(f"SELECT id FROM {table}") as blocks:
        assert list(blocks) == []


def test_values_of_many_types_come_back(client: Client) -> None:
    query = """SELECT toInt8(-1), toUInt64(18446744073709551615), toFloat64(0.1), 'ünï ✓', NULL::Nullable(Int32),
        toDateTime64('2024-02-29 12:34:56.789', 3, 'UTC'), toDecimal128('1.50', 2), [1, 2], map('a', 1), (1, 'x'),
        toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0'), toLowCardinality('low'), toIPv4('127.0.0.1'), true"""
    row = [str(value) for value in client.query(query).result_rows[0]]
    assert row == [
        *("-1", "18446744073709551615", "0.1", "ünï ✓", "None", "2024-02-29 12:34:56.789000", "1.50", "[1, 2]"),
        *("{'a': 1}", "(1, 'x')", "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "low", "127.0.0.1", "True"),
    ]


def test_a_result_of_a_million_rows_is_whole(client: Client) -> None:
    query = "SELECT number, toString(number) AS text FROM numbers(1000000)"
    assert client.query_df(query)["number"].sum() == 499_999_500_000
    with client.query_row_block_stream(query) as blocks:
        assert sum(len(block) for block in blocks) == 1_000_000
    with client.query_arrow_stream(query) as batches:
        assert sum(batch.num_rows for batch in batches) == 1_000_000


def test_an_abandoned_stream_leaves_the_server_well(server: Server) -> None:
    for _ in range(5):
        client = server.client()
        with client.query_row_block_stream("SELECT number FROM numbers(100000000)") as blocks:
            next(iter(blocks))
            client.close_connections()
    assert server.client().command("SELECT 1") == 1


def test_commands_answer_with_their_value(client: Client) -> None:
    assert client.command("SELECT 41 + 1") == 42
    assert client.command("EXISTS TABLE nowhere") == 0
    assert client.ping()
    assert client.raw_query("SELECT 1 AS x FORMAT JSONEachRow") == b'{"x":1}\n'
    assert client.raw_query("SELECT 1 AS x", fmt="CSVWithNames") == b'"x"\n1\n'


def test_a_database_of_its_own(server: Server, client: Client) -> None:
    client.command("CREATE DATABASE elsewhere")
    there = server.client(database="elsewhere")
    there.command("CREATE TABLE only_there (x Int8) ENGINE = MergeTree ORDER BY x")
    there.insert("only_there", [[1]], column_names=["x"])
    assert client.command("SELECT count() FROM elsewhere.only_there") == 1
    with pytest.raises(DatabaseError) as raised:
        client.command("SELECT count() FROM only_there")
    assert raised.value.code == 60
    client.command("DROP DATABASE elsewhere")


# Inserts


def test_rows_inserted_as_native_come_back(client: Client) -> None:
    client.command("""CREATE TABLE kinds (i Int64, s String, n Nullable(Int32), d DateTime64(3, 'UTC'), a Array(String),
        l LowCardinality(String)) ENGINE = MergeTree ORDER BY i""")
    moment = datetime(2024, 2, 29, 12, 34, 56, 789000)  # the client gives UTC columns without a zone
    rows = [[1, "ünï ✓ 'q' \\", None, moment, ["a", ""], "x"], [2, "", 7, moment, [], "y"]]
    summary = client.insert("kinds", rows, column_names=["i", "s", "n", "d", "a", "l"])
    assert summary.written_rows == 2
    found = client.query("SELECT * FROM kinds ORDER BY i").result_rows
    assert [[*row[:3], row[3].replace(tzinfo=None), *row[4:]] for row in found] == rows
    client.command("DROP TABLE kinds")


def test_two_hundred_thousand_rows_arrive_as_one_block(client: Client, table: str) -> None:
    rows = _rows(200_000)
    assert client.insert_arrow(table, rows).written_rows == 200_000
    assert client.query_arrow(f"SELECT * FROM {table} ORDER BY id", use_strings=True).to_pydict() == rows.to_pydict()
    parts = client.query(f"SELECT rows FROM system.parts WHERE active AND table = '{table}'").result_rows
    assert parts == [(200_000,)]


def test_a_data_frame_goes_in_and_comes_out(client: Client, table: str) -> None:
    frame = pd.DataFrame({"id": [1, 2], "name": ["a", "ü"]})
    client.insert_df(table, frame)
    pd.testing.assert_frame_equal(client.query_df(f"SELECT * FROM {table} ORDER BY id"), frame, check_dtype=False)


@pytest.mark.parametrize("arrow", [True, False])
def test_a_token_that_is_known_inserts_nothing(client: Client, table: str, arrow: bool) -> None:
    rows = _rows(1000)
    for token in ("a", "a", "b"):
        settings = {"insert_deduplication_token": token, "async_insert": 0}
        if arrow:
            client.insert_arrow(table, rows, settings=settings)
        else:
            client.insert(
                table, rows.to_pylist() and list(zip(*rows.to_pydict().values(), strict=True)), settings=settings
            )
    assert client.command(f"SELECT count() FROM {table}") == 2000


def test_a_token_holds_for_a_materialized_view_behind_the_table(client: Client, table: str) -> None:
    window = "SETTINGS non_replicated_deduplication_window = 100"
    client.command(f"CREATE TABLE {table}_sums (n UInt64) ENGINE = MergeTree ORDER BY n {window}")
    client.command(f"CREATE MATERIALIZED VIEW {table}_view TO {table}_sums AS SELECT count() AS n FROM {table}")
    settings = {"insert_deduplication_token": "a", "deduplicate_blocks_in_dependent_materialized_views": 1}
    for _ in range(2):
        client.insert_arrow(table, _rows(10), settings=settings)
    assert client.command(f"SELECT sum(n) FROM {table}_sums") == 10
    client.command(f"DROP VIEW {table}_view")
    client.command(f"DROP TABLE {table}_sums")


@pytest.mark.parametrize("compression", ["lz4", "zstd", "gzip", False])
def test_every_compression_works_both_ways(server: Server, table: str, compression: str | bool) -> None:
    client = server.client(compress=compression)
    rows = _rows(100_000)
    client.insert(table, list(zip(*rows.to_pydict().values(), strict=True)), column_names=["id", "name"])
    client.insert_arrow(table, _rows(10, start=100_000))
    assert (
        client.query_arrow(f"SELECT * FROM {table} WHERE id < 100000 ORDER BY id", use_strings=True).to_pydict()
        == rows.to_pydict()
    )
    assert len(client.query(f"SELECT * FROM {table}").result_rows) == 100_010


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("lz4", lz4.frame.compress),
        ("zstd", zstd.compress),
        ("gzip", lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:])),
        ("lz4", lambda data: lz4.frame.compress(data[:5]) + lz4.frame.compress(data[5:])),
    ],
)
def test_a_compressed_body_of_one_or_more_frames_is_read(
    server: Server, client: Client, table: str, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    data = b'{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n'
    query = {"query": f"INSERT INTO {table} FORMAT JSONEachRow"}
    assert _http(server, query, pack(data), {"Content-Encoding": coding})[0] == 200
    assert client.command(f"SELECT sum(id) FROM {table}") == 3


def test_a_broken_body_inserts_nothing(server: Server, client: Client, table: str) -> None:
    query = {"query": f"INSERT INTO {table} FORMAT JSONEachRow"}
    body = gzip.compress(b'{"id": 1, "name": "a"}\n' * 1000)[:-10]
    status, headers, _ = _http(server, query, body, {"Content-Encoding": "gzip"})
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (400, "117")
    assert client.command(f"SELECT count() FROM {table}") == 0


def test_statement_and_data_may_share_a_body_in_chunks(server: Server, client: Client, table: str) -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, _rows(5).schema) as writer:
        writer.write_table(_rows(5))
    body = f"INSERT INTO {table} FORMAT ArrowStream\n".encode() + sink.getvalue()
    pieces = (body[at : at + 100] for at in range(0, len(body), 100))
    request = urllib.request.Request(server.url, pieces, {"Content-Type": "application/octet-stream"}, method="POST")  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # our own address
        assert json.loads(answer.headers["X-ClickHouse-Summary"])["written_rows"] == "5"
    assert client.command(f"SELECT count() FROM {table}") == 5


def test_an_insert_may_select(client: Client, table: str) -> None:
    client.command(f"INSERT INTO {table} SELECT number, 'x' FROM numbers(10)")
    client.command(f"INSERT INTO {table} VALUES (100, 'FORMAT; VALUES'), (101, toString(1))")
    assert client.command(f"SELECT count() FROM {table}") == 12


# Errors


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("SELECT * FROM nowhere", 404, 60),
        ("SELEC 1", 400, 62),
        ("SELECT 1; SELECT 2", 400, 62),
        ("SELECT nothing FROM system.one", 404, 47),
        ("SELECT 1 FORMAT Nonsense", 404, 73),
        ("SELECT throwIf(1)", 500, 395),
        ("SELECT {x:Int32}", 500, 456),
        ("SELECT toInt32('x')", 400, 6),
        ("INSERT INTO nowhere FORMAT CSV 1", 404, 60),
        ("INSERT INTO FUNCTION null('x Int32') FORMAT CSV y", 400, 117),
        ("", 400, 62),
    ],
)
def test_errors_have_clickhouses_status_and_code(server: Server, query: str, status: int, code: int) -> None:
    found, headers, body = _http(server, {"database": "default"}, query.encode())
    assert (found, headers["X-ClickHouse-Exception-Code"]) == (status, str(code))
    assert body.startswith(f"Code: {code}. DB::Exception: ".encode())


@pytest.mark.parametrize(
    ("parameters", "status", "code"),
    [
        ({"no_such_setting": "1"}, 404, 115),
        ({"x=1, y": "1"}, 404, 115),
        ({"database": "nowhere"}, 404, 81),
        ({"compress": "1"}, 501, 48),
        ({"session_id": "unknown", "session_check": "1"}, 500, 372),
    ],
)
def test_wrong_parameters_are_refused(server: Server, parameters: dict[str, str], status: int, code: int) -> None:
    found, headers, _ = _http(server, parameters, b"SELECT 1")
    assert (found, headers["X-ClickHouse-Exception-Code"]) == (status, str(code))


def test_an_error_after_a_million_rows_reaches_the_reader(client: Client) -> None:
    query = "SELECT throwIf(number = 3000000), number FROM numbers(4000000)"
    settings = {"max_block_size": 65536, "max_threads": 1}
    with client.query_row_block_stream(query, settings=settings) as blocks, pytest.raises(StreamFailureError) as raised:
        for _ in blocks:
            pass
    assert raised.value.code == 395


def test_a_server_after_an_error_works_on(client: Client, table: str) -> None:
    with pytest.raises(DatabaseError):
        client.insert(table, [[1]], column_names=["nothing"], column_type_names=["Int64"])
    client.insert(table, [[1, "a"]], column_names=["id", "name"])
    assert client.command(f"SELECT count() FROM {table}") == 1


# Ordinary users


def test_curl_may_ask_by_get_and_not_write(server: Server) -> None:
    assert _http(server, {})[2] == b"Ok.\n"
    assert _http(server, {"query": "SELECT 1"})[2] == b"1\n"
    status, headers, _ = _http(server, {"query": "CREATE TABLE by_get (x Int8) ENGINE = Memory"})
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (500, "164")


def test_curl_may_post_the_query_its_data_or_both(server: Server, client: Client, table: str) -> None:
    assert _http(server, {}, b"SELECT 'a', 1")[2] == b"a\t1\n"
    assert _http(server, {"query": "SELECT 1", "default_format": "JSONEachRow"}, b"")[2] == b'{"1":1}\n'
    assert _http(server, {"query": f"INSERT INTO {table} FORMAT CSV"}, b"1,a\n2,b\n")[0] == 200
    assert _http(server, {}, f"INSERT INTO {table} VALUES (3, 'c')".encode())[0] == 200
    assert client.command(f"SELECT sum(id) FROM {table}") == 6


def test_any_credentials_are_taken(server: Server) -> None:
    assert server.client(username="someone", password="secret").command("SELECT 1") == 1


def test_a_session_keeps_its_settings_and_temporary_tables(server: Server) -> None:
    client = server.client(session_id="mine")
    client.command("CREATE TEMPORARY TABLE scratch (x Int8)")
    client.command("SET max_block_size = 77")
    query = "SELECT getSetting('max_block_size')"
    assert client.command(query, settings={"max_block_size": 78}) == 78
    assert client.command(query) == 77
    assert client.command("SELECT count() FROM scratch") == 0
    with pytest.raises(DatabaseError):
        server.client(session_id="another").command("SELECT count() FROM scratch")


# Together, and across restarts


def test_eight_clients_at_once(server: Server, client: Client, table: str) -> None:
    def work(number: int) -> int:
        own = server.client()
        for turn in range(5):
            own.insert_arrow(table, _rows(1000, start=(number * 5 + turn) * 1000))
            with own.query_row_block_stream("SELECT number FROM numbers(200000)") as blocks:
                assert sum(len(block) for block in blocks) == 200_000
            with pytest.raises(DatabaseError):
                own.query("SELECT * FROM nowhere")
        return int(own.command("SELECT {n:Int64}", parameters={"n": number}))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))
    assert client.query(f"SELECT count(), uniqExact(id) FROM {table}").result_rows == [(40_000, 40_000)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_confirmed_rows_and_tokens_survive_the_end(tmp_path: Path, number: signal.Signals) -> None:
    server = Server(tmp_path / "data", free_port())
    settings = {"insert_deduplication_token": "a"}
    try:
        server.start()
        client = server.client()
        client.command(
            "CREATE TABLE kept (id Int64, name String) ENGINE = MergeTree ORDER BY id "
            "SETTINGS non_replicated_deduplication_window = 100"
        )
        client.insert_arrow("kept", _rows(50_000), settings=settings)
        client.close()
        assert server.end(number) == (0 if number == signal.SIGTERM else -number)
        server.start()
        client = server.client()
        client.insert_arrow("kept", _rows(50_000), settings=settings)
        assert client.query("SELECT count(), sum(id) FROM kept").result_rows == [(50_000, 1_249_975_000)]
    finally:
        server.end()


def test_a_folder_that_another_server_has_open_is_refused_in_one_line(server: Server) -> None:
    module = "glassflow_dagster.local.clickhouse_server"
    command = [sys.executable, "-m", module, "--data", str(server.data), "--port", str(free_port())]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 1
    assert str(server.data) in answer.stderr
    assert "Traceback" not in answer.stderr
