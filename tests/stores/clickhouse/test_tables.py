"""Descriptions of tables, on a real ClickHouse where a query is needed."""

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.table import Table, find_table


@pytest.mark.parametrize(
    ("engine", "plain", "merges"),
    [
        ("MergeTree", True, False),
        ("ReplicatedMergeTree", True, False),
        ("ReplacingMergeTree", False, True),
        ("SharedSummingMergeTree", False, True),
        ("Memory", False, False),
    ],
)
def test_an_engine_says_whether_rows_stay(engine: str, plain: bool, merges: bool) -> None:
    table = Table("d", "t", engine, engine, {}, rows=0, ttl=False)
    assert (table.is_plain, table.merges_rows) == (plain, merges)


@pytest.mark.servers
def test_the_bookkeeping_tables_are_made_once(connection: ClickHouseConnection, client: Client) -> None:
    for _ in range(2):
        ensure_bookkeeping(client, connection.database)
    for name in ("glassflow_ledger", "glassflow_dead_letters"):
        found = find_table(client, connection.database, name)
        assert found is not None
        assert "inserted_at" in found.columns
