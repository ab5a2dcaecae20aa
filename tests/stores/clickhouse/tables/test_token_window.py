"""A window that must have room for more insert tokens than it was made for, for a user who may not enlarge it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.tables.token_window import keep_more_tokens_if_allowed, read_window
from tests.local.conftest import Server

pytestmark = pytest.mark.servers


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    """Yield the client of an administrator, and of a user who may not alter the table d.t."""
    server = Server(tmp_path, free_port())
    server.add_user("reader", grants=["GRANT SELECT, INSERT ON d.*"])
    server.start()
    connection = ClickHouseConnection(
        host="127.0.0.1", port=9000, http_port=server.port, database="d", username="reader"
    )  # fmt: skip
    everyone = server.client()
    everyone.command("CREATE DATABASE d")
    everyone.command(
        "CREATE TABLE d.t (n UInt8) ENGINE = MergeTree ORDER BY n SETTINGS non_replicated_deduplication_window = 10000"
    )
    yield everyone, connect(connection)
    server.end()


def test_a_user_without_the_right_may_use_the_whole_window_and_is_told_the_statement(
    clients: tuple[Client, Client],
) -> None:
    everyone, reader = clients
    keep_more_tokens_if_allowed(reader, "d", "t", 20_000)

    with pytest.raises(TableProblem, match=r"d.t keeps 10000 insert tokens, and a batch needs more.*run ALTER TABLE"):
        keep_more_tokens_if_allowed(reader, "d", "t", 40_000)

    assert read_window(reader, "d", "t").blocks == 10_000
    keep_more_tokens_if_allowed(everyone, "d", "t", 40_000)
    assert read_window(everyone, "d", "t").blocks == 40_000
    keep_more_tokens_if_allowed(reader, "d", "t", 80_000)
