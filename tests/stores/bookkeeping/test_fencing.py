"""Fencing on a real ClickHouse: of several drivers of one checkpoint only the newest writes."""

import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.errors import Fenced
from glassflow_dagster.stores.bookkeeping import fencing
from glassflow_dagster.stores.bookkeeping.fencing import EPOCHS, Epoch, begin_epoch, read_rival_starts
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER
from glassflow_dagster.stores.bookkeeping.schema import BookkeepingTable
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.errors import ClickHouseUnreachable
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.table import count_rows

pytestmark = pytest.mark.servers


class Checkpoint:
    """A checkpoint that several drivers run, and the table they write to."""

    def __init__(self, client: Client, database: str) -> None:
        self.client, self.database, self.checkpoint_id = client, database, str(uuid4())
        ensure_bookkeeping(client, database)
        execute(client, f"CREATE TABLE {database}.t (id UInt64) ENGINE = MergeTree ORDER BY id")

    def begin(self, folder: str = "/state/p", checkpoint_id: str | None = None) -> Epoch:
        """Begin an epoch, as a driver does when it starts."""
        rows = {"t": self.rows}
        return begin_epoch(self.client, self.database, "p", checkpoint_id or self.checkpoint_id, folder, rows)

    def insert(self, epoch: Epoch | None) -> None:
        """Insert one row as the driver of an epoch."""
        Inserter(self.client, 10, print, epoch).insert(
            self.database, "t", ArrowBlock(pa.table({"id": [1]})), Token(str(uuid4()))
        )

    @property
    def rows(self) -> int:
        return count_rows(self.client, self.database, "t")


@pytest.fixture
def recorded_queries(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the queries of the client."""
    recorded, query = [], client.query

    def record(sql: str, *rest: object, **settings: object) -> object:
        recorded.append(sql)
        return query(sql, *rest, **settings)

    monkeypatch.setattr(client, "query", record)
    return recorded


@pytest.fixture
def checkpoint(client: Client, connection: ClickHouseConnection) -> Checkpoint:
    return Checkpoint(client, connection.database)


def test_an_older_driver_writes_nothing_and_is_told_who_took_over(checkpoint: Checkpoint) -> None:
    older = checkpoint.begin()
    checkpoint.insert(older)
    newer = checkpoint.begin("/other/p")
    checkpoint.insert(newer)
    with pytest.raises(Fenced, match=r"p: another driver runs this pipeline since .* in /other/p; .*remove"):
        checkpoint.insert(older)
    checkpoint.insert(newer)
    checkpoint.insert(None)  # an insert without an epoch, which no driver makes
    assert checkpoint.rows == 4


def test_an_epoch_of_another_checkpoint_fences_and_of_another_pipeline_does_not(checkpoint: Checkpoint) -> None:
    mine = checkpoint.begin()
    begin_epoch(checkpoint.client, checkpoint.database, "q", checkpoint.checkpoint_id, "", {})
    checkpoint.insert(mine)
    checkpoint.begin("/elsewhere", str(uuid4()))
    with pytest.raises(Fenced, match="in /elsewhere"):
        checkpoint.insert(mine)
    assert checkpoint.rows == 1


def test_a_first_start_knows_of_those_before_it_and_what_the_table_held_then(checkpoint: Checkpoint) -> None:
    def rivals(of: Epoch) -> list[tuple[str, int, bool]]:
        starts = read_rival_starts(checkpoint.client, of)
        return [(start.folder, start.rows_by_table["t"], start.closed) for start in starts]

    first = checkpoint.begin("/first")
    checkpoint.insert(first)
    assert rivals(first) == []
    second = checkpoint.begin("/second", str(uuid4()))
    assert rivals(second) == [("/first", 0, False)]
    execute(
        checkpoint.client,
        f"INSERT INTO {checkpoint.database}.{LEDGER.name} (pipeline_id, checkpoint_id) "
        f"VALUES ('p', '{first.checkpoint_id}')",
    )
    # The second epoch began after the first one's batch and knows of it; to the first epoch the second is news.
    assert rivals(second) == []
    assert rivals(checkpoint.begin("/first")) == [("/second", 1, False)]


def test_of_two_that_begin_at_the_same_moment_one_writes(checkpoint: Checkpoint) -> None:
    """Both drivers read the same newest epoch, as when two hosts start at once."""
    first = checkpoint.begin()
    second = Epoch(first.database, "p", first.checkpoint_id, first.number, str(uuid4()))
    execute(
        checkpoint.client,
        f"INSERT INTO {first.database}.{EPOCHS.name} (pipeline_id, checkpoint_id, epoch, driver) "
        f"VALUES ('p', '{second.checkpoint_id}', {second.number}, '{second.driver}')",
    )
    newer, older = sorted((first, second), key=lambda epoch: epoch.driver, reverse=True)
    checkpoint.insert(newer)
    with pytest.raises(Fenced):
        checkpoint.insert(older)
    assert checkpoint.rows == 1


def test_a_driver_whose_epoch_row_is_gone_writes_nothing(checkpoint: Checkpoint) -> None:
    mine = checkpoint.begin()
    execute(checkpoint.client, f"TRUNCATE TABLE {checkpoint.database}.{EPOCHS.name}")
    with pytest.raises(Fenced, match="has lost this driver's row"):
        checkpoint.insert(mine)
    assert checkpoint.rows == 0


def test_a_fencing_check_is_valid_for_a_short_time(
    checkpoint: Checkpoint, recorded_queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = checkpoint.begin()
    clock = 1000.0
    monkeypatch.setattr(fencing.time, "clock_gettime", lambda _: clock)
    recorded_queries.clear()
    for _ in range(3):
        checkpoint.insert(mine)
    assert len(recorded_queries) == 1
    clock += fencing.CHECK_VALID_SECONDS
    checkpoint.insert(mine)
    assert len(recorded_queries) == 2


def test_a_driver_that_begins_waits_until_what_older_ones_know_is_void(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    # Patch the module's own `time`: other threads of the tests sleep, too.
    monkeypatch.setattr(fencing, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    checkpoint.begin()
    assert slept == []  # no older driver may still trust its answer
    checkpoint.begin()
    assert slept == [fencing.CHECK_VALID_SECONDS]


def test_of_two_that_begin_at_once_the_later_one_waits(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both drivers read before either inserts its row; the other row comes first, and that driver may be writing."""
    slept: list[float] = []
    monkeypatch.setattr(fencing, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))

    insert_row = BookkeepingTable.insert_row

    def insert_second(*row: Any) -> None:
        monkeypatch.setattr(BookkeepingTable, "insert_row", insert_row)
        checkpoint.begin()
        insert_row(*row)

    monkeypatch.setattr(BookkeepingTable, "insert_row", insert_second)
    checkpoint.begin()
    assert slept == [fencing.CHECK_VALID_SECONDS]


def test_every_attempt_checks_the_epoch_again(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt fails without a certain outcome; a newer driver begins before the second attempt."""
    monkeypatch.setattr(fencing, "CHECK_VALID_SECONDS", 0.1)  # the pause before the second attempt
    mine, command = checkpoint.begin(), checkpoint.client.command

    def reset(*_: object, **__: object) -> object:
        monkeypatch.setattr(checkpoint.client, "command", command)
        checkpoint.begin()
        raise OSError("the connection was reset")

    monkeypatch.setattr(checkpoint.client, "command", reset)
    with pytest.raises(Fenced):
        checkpoint.insert(mine)
    assert checkpoint.rows == 0


def test_the_fencing_query_is_retried_until_the_deadline(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, tried = checkpoint.begin(), []

    def reset(*_: object, **__: object) -> object:
        tried.append(True)
        raise OSError("the connection was reset")

    monkeypatch.setattr(checkpoint.client, "query", reset)
    with pytest.raises(ClickHouseUnreachable, match="connection was reset"):
        Inserter(checkpoint.client, 0.5, print, mine).insert(
            checkpoint.database, "t", ArrowBlock(pa.table({"id": [1]})), Token("a")
        )
    monkeypatch.undo()
    assert len(tried) > 1
    assert checkpoint.rows == 0


def test_the_names_of_tables_are_kept_as_they_are(checkpoint: Checkpoint) -> None:
    """They are part of a query parameter, in which quotes and backslashes have a meaning."""
    rows = {r"d.it's": 1, "d.back\\slash\\n": 2, 'd."t"': 3, "d.tab\t": 4}
    begin_epoch(checkpoint.client, checkpoint.database, "p", str(uuid4()), "", rows)
    [rival] = read_rival_starts(checkpoint.client, checkpoint.begin())
    assert rival.rows_by_table == rows
