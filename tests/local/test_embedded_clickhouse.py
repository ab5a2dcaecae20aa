"""Properties of the embedded ClickHouse that the pipelines and their tests rely on, seen by an ordinary client."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from glassflow_dagster.local.ports import free_port
from tests.local.conftest import Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

_numbers = count()


@pytest.fixture
def table(client: Client) -> Iterator[str]:
    """Create an empty table (id Int64, name String) that remembers insert tokens."""
    name = f"t{next(_numbers)}"
    window = "SETTINGS non_replicated_deduplication_window = 100"
    client.command(f"CREATE TABLE {name} (id Int64, name String) ENGINE = MergeTree ORDER BY id {window}")
    yield name
    client.command(f"DROP TABLE {name}")


def _rows(number: int, start: int = 0) -> pa.Table:
    ids = range(start, start + number)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"name-{i}" for i in ids]})


def test_two_hundred_thousand_rows_arrive_as_one_block(client: Client, table: str) -> None:
    rows = _rows(200_000)
    assert client.insert_arrow(table, rows).written_rows == 200_000
    assert client.query_arrow(f"SELECT * FROM {table} ORDER BY id", use_strings=True).to_pydict() == rows.to_pydict()
    parts = client.query(f"SELECT rows FROM system.parts WHERE active AND table = '{table}'").result_rows
    assert parts == [(200_000,)]


@pytest.mark.parametrize("arrow", [True, False])
def test_a_token_that_is_known_inserts_nothing(client: Client, table: str, arrow: bool) -> None:
    rows = _rows(1000)
    for token in ("a", "a", "b"):
        settings = {"insert_deduplication_token": token, "async_insert": 0}
        if arrow:
            client.insert_arrow(table, rows, settings=settings)
        else:
            client.insert(table, list(zip(*rows.to_pydict().values(), strict=True)), settings=settings)
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


def test_sigterm_lets_a_running_insert_finish(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", free_port())
    server.start()
    client = server.client()
    client.command("CREATE TABLE slow (n UInt64) ENGINE = MergeTree ORDER BY n")
    insert = "INSERT INTO slow SELECT number FROM numbers(20) WHERE sleepEachRow(0.05) = 0"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.client().command, insert)
        wait_until(lambda: _running(client, "INSERT INTO slow"), "the insert runs")
        assert server.end() == 0
        running.result(30)
    server.start()
    assert server.client().command("SELECT count() FROM slow") == 20
    server.end()


def test_a_server_that_was_stopped_for_a_while_goes_on(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", free_port())
    server.start()
    try:
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        wait_until(lambda: _state_of(server.process.pid) == "T", "the server is stopped")
        os.kill(server.process.pid, signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(2)
        assert server.client().command("SELECT 1") == 1
    finally:
        server.end()


def _state_of(pid: int) -> str:
    """Return the state of a process, as Linux names it in a letter."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _running(client: Client, statement: str) -> bool:
    found = client.query("SELECT count() FROM system.processes WHERE startsWith(query, {s:String})", {"s": statement})
    return bool(found.result_rows[0][0])


def test_it_speaks_the_native_protocol_where_it_is_asked_to(tmp_path: Path) -> None:
    port = free_port()
    server = Server(tmp_path / "data", free_port(), native_port=port)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            texts = (b"default", b"default", b"")
            # Hello: packet 0, the client's name, its version 26.9 and revision 54,000; then database, user, password.
            hello = b"\x00" + _text(b"test") + b"\x1a\x09" + b"\xf0\xa5\x03" + b"".join(map(_text, texts))
            connection.sendall(hello)
            answer = connection.recv(1024)
        assert answer[0] == 0
        assert b"ClickHouse" in answer
    finally:
        server.end()


def _text(content: bytes) -> bytes:
    return bytes([len(content)]) + content


def test_a_folder_that_another_server_has_open_is_refused_and_the_last_line_says_why(server: Server) -> None:
    module = "glassflow_dagster.local.embedded_clickhouse"
    command = [sys.executable, "-m", module, "--data", str(server.data), "--port", str(free_port())]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 1
    told = (answer.stdout + answer.stderr).strip().splitlines()[-1]
    assert f"Cannot lock file {server.data}" in told
