"""Migration of bookkeeping tables of an earlier version, and the TTL of their rows, on a real ClickHouse."""

from dataclasses import replace

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping import tables
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DEAD_LETTERS
from glassflow_dagster.stores.bookkeeping.schema import NEVER
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.clickhouse.tables.ddl import ensure_database

pytestmark = pytest.mark.servers

ADDED = {"attempt", "origin_topic", "origin_partition", "origin_offset", "passed_dedup", "expires_at"}


def test_tables_of_an_earlier_version_get_what_they_lack_and_keep_what_they_have(
    client: Client, connection: ClickHouseConnection
) -> None:
    database = connection.database
    ensure_database(client, database)
    old = tuple(column for column in DEAD_LETTERS.columns if column.name not in ADDED)
    execute(client, tables.create_table(database, replace(DEAD_LETTERS, columns=old, ttl="")))
    where = f"{database}.{DEAD_LETTERS.name}"
    execute(client, f"INSERT INTO {where} (pipeline_id, topic, partition, offset) VALUES ('p', 't', 3, 9)")
    with pytest.raises(TableProblem, match="does not exist"):
        tables.require_bookkeeping_tables(client, database)
    for _ in range(2):
        tables.ensure_bookkeeping(client, database)
    tables.require_bookkeeping_tables(client, database)
    columns = "attempt, origin_topic, origin_partition, origin_offset, passed_dedup, toUnixTimestamp(expires_at)"
    execute(client, f"OPTIMIZE TABLE {where} FINAL")
    assert fetch(client, f"SELECT {columns} FROM {where}") == [(0, "t", 3, 9, False, NEVER)]

    execute(client, f"INSERT INTO {where} (pipeline_id, expires_at) VALUES ('old', now() - 10), ('new', now() + 600)")
    execute(client, f"OPTIMIZE TABLE {where} FINAL")
    assert fetch(client, f"SELECT pipeline_id FROM {where} ORDER BY 1") == [("new",), ("p",)]


def test_tables_that_lack_columns_are_said_to_be_of_an_earlier_version(
    client: Client, connection: ClickHouseConnection
) -> None:
    tables.ensure_bookkeeping(client, connection.database)
    execute(client, f"ALTER TABLE {connection.database}.{DEAD_LETTERS.name} DROP COLUMN attempt")
    with pytest.raises(TableProblem, match="was created by an earlier version and lacks columns; start the pipeline"):
        tables.require_bookkeeping_tables(client, connection.database)
