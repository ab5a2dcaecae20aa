"""The books that an earlier version made, and how their rows expire; on the real engine."""

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse import ddl
from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.ledger import require_books
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.config.model import ClickHouseConnection

pytestmark = pytest.mark.servers

ADDED = {"attempt", "origin_topic", "origin_partition", "origin_offset", "passed_dedup", "expires_at"}


def test_books_of_an_earlier_version_get_what_they_lack_and_keep_what_they_have(
    client: Client, connection: ClickHouseConnection
) -> None:
    database = connection.database
    ddl.ensure_database(client, database)
    letters = next(book for book in ddl.BOOKS if book.name == ddl.DEAD_LETTERS)
    old = {name: kind for name, kind in letters.columns.items() if name not in ADDED}
    execute(client, ddl.create_book(database, ddl.Book(letters.name, old, letters.order_by)))
    where = f"{database}.{letters.name}"
    execute(client, f"INSERT INTO {where} (pipeline_id, topic, partition, offset) VALUES ('p', 't', 3, 9)")
    with pytest.raises(TableProblem, match="does not exist"):
        require_books(client, database)
    for _ in range(2):
        ddl.ensure_bookkeeping(client, database)
    require_books(client, database)
    columns = "attempt, origin_topic, origin_partition, origin_offset, passed_dedup, toUnixTimestamp(expires_at)"
    execute(client, f"OPTIMIZE TABLE {where} FINAL")
    assert fetch(client, f"SELECT {columns} FROM {where}") == [(0, "t", 3, 9, False, ddl.NEVER)]

    execute(client, f"INSERT INTO {where} (pipeline_id, expires_at) VALUES ('old', now() - 10), ('new', now() + 600)")
    execute(client, f"OPTIMIZE TABLE {where} FINAL")
    assert fetch(client, f"SELECT pipeline_id FROM {where} ORDER BY 1") == [("new",), ("p",)]


def test_books_that_lack_columns_are_said_to_be_of_an_earlier_version(
    client: Client, connection: ClickHouseConnection
) -> None:
    ddl.ensure_bookkeeping(client, connection.database)
    execute(client, f"ALTER TABLE {connection.database}.{ddl.DEAD_LETTERS} DROP COLUMN attempt")
    with pytest.raises(TableProblem, match="was made by an earlier version and lacks columns; start the pipeline"):
        require_books(client, connection.database)
