"""The ledger as the page shows it, on a real ClickHouse."""

import time
from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping.ledger import LedgerRow, insert_ledger_row
from glassflow_dagster.stores.bookkeeping.ledger_view import SLICE_SECONDS, last_hour, newest_batches
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token

pytestmark = pytest.mark.servers
NOW_MS = round(time.time() * 1000)


def add(client: Client, database: str, checkpoint: str, batch: int, seconds_ago: int, offsets: tuple[int, int]) -> None:
    row = LedgerRow(
        pipeline_id="mine", checkpoint_id=checkpoint, batch_id=batch, batch_time_ms=NOW_MS - 1000 * seconds_ago,
        definition="d", offsets={"orders": {0: offsets, 1: (5, 5)}}, rows_before=0,
        outcomes=Outcomes(read=10, written=7, duplicates=2, dead_letters=1), blocks=1, bytes=80,
    )  # fmt: skip
    insert_ledger_row(Inserter(client, 10, print), database, row, Token(f"{checkpoint} {batch}"))


def test_batches_of_the_newest_checkpoint_are_shown_the_newest_first(
    client: Client, connection: ClickHouseConnection
) -> None:
    database, old, new = connection.database, str(uuid4()), str(uuid4())
    assert newest_batches(client, database, "mine", 10) == []
    assert last_hour(client, database, "mine") == {}
    ensure_bookkeeping(client, database)
    add(client, database, old, 8, 9000, (0, 10))
    for batch in range(3):
        add(client, database, new, batch, 7300 - 3600 * batch, (10 * batch, 10 * batch + 10))
    found = newest_batches(client, database, "mine", 10)
    assert [each.batch_id for each in found] == [2, 1, 0]
    assert found[0].offsets == ("orders[0] 20 to 29",)
    assert (found[0].counts["written"], found[0].counts["duplicates"], found[0].time_ms) == (7, 2, NOW_MS - 100_000)
    assert [each.batch_id for each in newest_batches(client, database, "mine", 1, before=2)] == [1]
    assert newest_batches(client, database, "other", 10) == []


def test_the_last_hour_is_summed_by_slices(client: Client, connection: ClickHouseConnection) -> None:
    database, checkpoint = connection.database, str(uuid4())
    ensure_bookkeeping(client, database)
    for batch, seconds_ago in enumerate((4000, 600, 600, 60)):
        add(client, database, checkpoint, batch, seconds_ago, (0, 10))
    found = last_hour(client, database, "mine")
    size = SLICE_SECONDS * 1000
    assert {(NOW_MS // size - at, each.read, each.written) for at, each in found.items()} == {(6, 10, 7), (60, 20, 14)}
