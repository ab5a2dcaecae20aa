"""Inserts of blocks with deduplication tokens, on a real ClickHouse."""

import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stores.clickhouse import client as clickhouse_client
from glassflow_dagster.stores.clickhouse.errors import ClickHouseUnreachable, InsertRefused, RowsRefused
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter, insert_settings
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import execute, fetch, retry
from glassflow_dagster.stores.clickhouse.server_run import read_server_run
from glassflow_dagster.stores.clickhouse.table import count_rows
from tests.faults.http_proxy import Exchange, HttpProxy, Rule, late_exception


@pytest.fixture
def table(connection: ClickHouseConnection, client: Client) -> str:
    execute(client, f"CREATE DATABASE {connection.database}")
    execute(
        client,
        f"CREATE TABLE {connection.database}.t (id UInt64, text String, CONSTRAINT small CHECK id < 1000000) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 100",
    )
    return "t"


def block(*ids: int, text: str | None = "x") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.uint64()), "text": pa.array([text] * len(ids), pa.string())})


def insert(client: Client, database: str, table: str, content: pa.Table, token: str) -> None:
    Inserter(client, 10, print, begin=BatchBegin(read_server_run(client))).insert(
        database, table, ArrowBlock(content), Token(token)
    )


pytestmark = pytest.mark.servers


def test_a_block_repeated_under_its_token_is_there_once(
    client: Client, connection: ClickHouseConnection, table: str
) -> None:
    for _ in range(3):
        insert(client, connection.database, table, block(1, 2, 3), "a")
    insert(client, connection.database, table, block(1, 2, 3), "b")
    assert count_rows(client, connection.database, table) == 6


def test_a_large_block_in_many_chunks_goes_in_as_one_part(
    client: Client, connection: ClickHouseConnection, table: str
) -> None:
    chunks = pa.concat_tables([block(*range(start, start + 50_000)) for start in range(0, 200_000, 50_000)])
    for _ in range(2):
        insert(client, connection.database, table, chunks, "large")
    parts = fetch(
        client, "SELECT count(), sum(rows) FROM system.parts WHERE database = {d:String}", {"d": connection.database}
    )
    assert parts == [(1, 200_000)]


@pytest.fixture
def proxy(connection: ClickHouseConnection) -> Iterator[HttpProxy]:
    found = HttpProxy(free_port(), connection.http)
    yield found
    found.close()


@pytest.mark.parametrize("applied", [True, False])
def test_an_exception_in_the_body_of_a_200_is_no_success(
    client: Client, connection: ClickHouseConnection, table: str, proxy: HttpProxy, applied: bool
) -> None:
    def act(exchange: Exchange) -> None:
        if applied:
            exchange.forward()
        exchange.answer(late_exception(241, "memory limit exceeded"))

    rule = proxy.fail(Rule(act, times=2))
    through = clickhouse_client.connect(connection.model_copy(update={"http_port": proxy.port}))
    insert(through, connection.database, table, block(1, 2, 3), "a")
    assert rule.hits == 2
    assert count_rows(client, connection.database, table) == 3


def test_a_question_is_asked_until_the_server_answers(connection: ClickHouseConnection, proxy: HttpProxy) -> None:
    through = clickhouse_client.connect(connection.model_copy(update={"http_port": proxy.port}))
    proxy.refuse()
    said: list[str] = []

    def report(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            proxy.accept()

    assert retry(lambda: fetch(through, "SELECT 1"), 30, report) == [(1,)]
    assert len(said) == 2
    proxy.refuse()
    with pytest.raises(ClickHouseUnreachable, match="did not answer"):
        retry(lambda: fetch(through, "SELECT 1"), 0.2, print)
    proxy.accept()


def test_what_an_insert_rests_on_is_said_with_every_insert(client: Client) -> None:
    """Other values of these settings lose or duplicate rows, so a user's or profile's must not reach an insert."""
    said = insert_settings(client, Token("name"), 7)
    assert said.pop("query_id").startswith("glassflow/name/")
    assert said == {
        "insert_deduplication_token": "name",
        "wait_end_of_query": 1,
        "async_insert": 0,
        "wait_for_async_insert": 1,
        "insert_deduplicate": 1,
        "deduplicate_insert": "enable",
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        "materialized_views_ignore_errors": 0,
        "min_insert_block_size_rows": 0,
        "min_insert_block_size_bytes": 0,
        "max_insert_block_size": 1_048_449,
        "max_insert_block_size_bytes": 0,
        "use_strict_insert_block_limits": 0,
        "max_partitions_per_insert_block": 100,
        "throw_on_max_partitions_per_insert_block": 1,
        "max_insert_delayed_streams_for_parallel_write": 1_000_000,
        "input_format_null_as_default": 0,
        "input_format_with_names_use_header": 1,
        "input_format_with_types_use_header": 1,
        "input_format_max_block_size_bytes": 0,
        "input_format_max_block_wait_ms": 0,
        "input_format_connection_handling": 0,
        "input_format_binary_decode_types_in_binary_format": 0,
        "input_format_binary_read_json_as_string": 1,
        "insert_distributed_sync": 1,
        "distributed_foreground_insert": 1,
        "insert_distributed_one_random_shard": 0,
        "insert_shard_id": 0,
    }


def test_a_profile_that_says_otherwise_neither_gathers_nor_doubles_nor_cuts(
    client: Client, connection: ClickHouseConnection, table: str
) -> None:
    others = {"async_insert": 1, "insert_deduplicate": 0, "max_insert_block_size": 1, "min_insert_block_size_rows": 1}
    if "deduplicate_insert" in client.server_settings:
        others["deduplicate_insert"] = "disable"
    for name, value in others.items():
        client.set_client_setting(name, value)
    for _ in range(2):
        insert(client, connection.database, table, block(1, 2, 3), "one")
    found = client.query(f"SELECT count(), uniqExact(_part) FROM {connection.database}.{table}").result_rows
    assert found == [(3, 1)]


def test_an_empty_block_is_no_request(client: Client, connection: ClickHouseConnection) -> None:
    tables = "SELECT count() FROM system.tables WHERE database = {d:String} AND name = 'no such table'"
    insert(client, connection.database, "no such table", block(), "a")
    assert client.query(tables, {"d": connection.database}).result_rows == [(0,)]


@pytest.mark.parametrize("wrong", [block(5_000_000), block(1, text=None)], ids=["constraint", "null"])
def test_values_at_fault_are_refused_and_nothing_is_written(
    client: Client, connection: ClickHouseConnection, table: str, wrong: pa.Table
) -> None:
    with pytest.raises(RowsRefused, match="refuses values"):
        insert(client, connection.database, table, wrong, "a")
    assert count_rows(client, connection.database, table) == 0


def test_a_table_that_is_missing_or_lacks_a_column_is_refused_at_once(
    client: Client, connection: ClickHouseConnection, table: str
) -> None:
    with pytest.raises(InsertRefused, match="UNKNOWN_TABLE"):
        insert(client, connection.database, "absent", block(1), "a")
    with pytest.raises(InsertRefused, match="NO_SUCH_COLUMN_IN_TABLE"):
        insert(client, connection.database, table, pa.table({"nothing": [1]}), "a")


def test_a_server_that_is_gone_is_tried_until_the_deadline(
    connection: ClickHouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = clickhouse_client.connect(connection)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(client._backend, "_base_url", f"http://127.0.0.1:{port}/")  # noqa: SLF001 - a client needs a server to be made
    said: list[str] = []
    with pytest.raises(ClickHouseUnreachable, match="did not confirm a block"):
        Inserter(client, 0.5, said.append).insert("d", "t", ArrowBlock(block(1)), Token("a"))
    assert said
    assert all("Connection refused" in text for text in said)


def test_a_server_that_is_down_is_one_line_with_address_and_remedy(connection: ClickHouseConnection) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ClickHouseUnreachable, match=f"127.0.0.1:{port} cannot be reached.*start it") as raised:
        clickhouse_client.wait_for_clickhouse(connection.model_copy(update={"http_port": port}), 0.1, print)
    assert "\n" not in str(raised.value)
