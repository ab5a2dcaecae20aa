"""Blocks with rows that the server rejects, on a real ClickHouse, with simulated deaths after every request."""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping.fencing import begin_epoch
from glassflow_dagster.stores.bookkeeping.splits import BatchName, RefusedRow, Split, read_splits
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.errors import ClickHouseUnreachable, InsertRefused
from glassflow_dagster.stores.clickhouse.inserts import insert as inserts
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.clickhouse.server_run import read_server_run
from glassflow_dagster.stores.clickhouse.tables.token_window import read_window
from glassflow_dagster.stream.delivery import block_writer
from glassflow_dagster.stream.delivery.block_writer import BlockWriter, read_table_ddl

pytestmark = pytest.mark.servers

BLOCK = "p/i/0/0/0"
DROP, ADD = "DROP CONSTRAINT small", "ADD CONSTRAINT small CHECK id < 1000"


def block_of(ids: list[int]) -> ArrowBlock:
    return ArrowBlock(pa.table({"id": pa.array(ids, pa.uint64())}))


class DiedError(Exception):
    """Simulates the death of the process between two requests."""


@dataclass
class Dying(Inserter):
    """An inserter that dies after this many requests; None: never."""

    limit: int | None = None
    sent: int = 0

    def insert(self, *request: Any) -> None:
        if self.limit is not None and self.sent >= self.limit:
            raise DiedError
        self.sent += 1
        super().insert(*request)


class Target:
    """A table with a constraint, and a batch that may be written several times."""

    def __init__(self, client: Client, database: str) -> None:
        self.client, self.database = client, database
        self.dies_after: int | None = None
        ensure_bookkeeping(client, database)
        execute(
            client,
            f"CREATE TABLE {database}.t (id UInt64, CONSTRAINT small CHECK id < 1000) "
            "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000",
        )
        self.begin()

    def begin(self) -> None:
        """Begin a new batch, which is planned with the table as it is now."""
        self.batch = BatchName(self.database, "pipeline", str(uuid4()), 0)
        self.planned = read_table_ddl(self.client, self.database, "t")
        self.epoch = begin_epoch(self.client, self.database, self.batch.pipeline_id, self.batch.checkpoint_id, "", {})
        self.tried = False

    def write(self, ids: list[int]) -> list[int]:
        """Write the batch's only block, as a repetition after the first call; return the rejected rows' ids."""
        splits = read_splits(self.client, self.batch) if self.tried else None
        self.tried = True
        writer = self.writer(splits)
        token = Token(f"{self.batch.checkpoint_id}/{BLOCK}")
        refused = writer.insert(block_of(ids), token)
        assert all("Constraint `small`" in reason and "\n" not in reason for _, reason in refused)
        return [ids[row] for row, _ in refused]

    def writer(self, splits: dict[str, Split] | None) -> BlockWriter:
        begin, repeated = BatchBegin(read_server_run(self.client)), splits is not None
        inserter = Dying(self.client, 10, print, self.epoch, begin, repeated=repeated, limit=self.dies_after)
        return BlockWriter(inserter, self.database, "t", self.batch, self.planned, splits)

    def splits(self) -> dict[str, Split]:
        return read_splits(self.client, self.batch)

    def alter(self, change: str) -> None:
        execute(self.client, f"ALTER TABLE {self.database}.t {change}")

    def rows(self) -> list[int]:
        return [row[0] for row in fetch(self.client, f"SELECT id FROM {self.database}.t ORDER BY id")]


@pytest.fixture
def target(client: Client, connection: ClickHouseConnection) -> Target:
    return Target(client, connection.database)


def block(size: int, *wrong: int) -> tuple[list[int], list[int]]:
    """Return the ids of a block with wrong ids at these positions, and the good ids in order."""
    ids = [1000 + row if row in wrong else row for row in range(size)]
    return ids, [row for row in range(size) if row not in wrong]


@pytest.mark.parametrize(
    ("size", "wrong"),
    [(1, [0]), (2, [1]), (17, [0, 16]), (300, [7, 8, 299]), (40, list(range(40)))],
)
def test_good_rows_go_in_once_and_the_others_are_named(target: Target, size: int, wrong: list[int]) -> None:
    ids, good = block(size, *wrong)
    refused = [1000 + row for row in wrong]
    assert target.write(ids) == refused
    assert target.rows() == good
    # Repeat with the split notes of the first run, then once more without a new batch, as a retry of a Spark task.
    assert (target.write(ids), target.rows()) == (refused, good)


def test_a_block_without_fault_is_one_request_and_no_note(target: Target) -> None:
    ids, good = block(50)
    assert (target.write(ids), target.write(ids), target.rows()) == ([], [], good)
    assert read_splits(target.client, target.batch) == {}


@pytest.mark.long
def test_a_death_after_any_request_neither_loses_nor_doubles_a_row(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_writer, "PARTS_PER_NOTE", 2)
    monkeypatch.setattr(block_writer, "ROWS_SENT_SINGLY", 2)
    ids, good = block(16, 3, 10, 11)
    deaths = 0
    while True:
        target.begin()
        execute(target.client, f"TRUNCATE TABLE {target.database}.t")
        target.dies_after = deaths
        try:
            target.write(ids)
        except DiedError:
            target.dies_after = None
        else:
            break
        assert (target.write(ids), target.rows()) == ([1003, 1010, 1011], good), f"died after {deaths} requests"
        deaths += 1
    assert deaths > 15


def test_a_constraint_that_is_dropped_in_between_doubles_no_row(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows rejected but not yet recorded as such are inserted then; recorded ones stay dead letters."""
    monkeypatch.setattr(block_writer, "PARTS_PER_NOTE", 2)
    monkeypatch.setattr(block_writer, "ROWS_SENT_SINGLY", 2)
    ids, _ = block(16, 3, 10, 11)
    rejected_counts = set()
    for deaths in range(0, 24, 2):
        target.begin()
        execute(target.client, f"TRUNCATE TABLE {target.database}.t")
        target.dies_after = deaths
        with pytest.raises(DiedError):
            target.write(ids)
        target.dies_after = None
        target.alter(DROP)
        refused = target.write(ids)
        assert sorted(target.rows() + refused) == sorted(ids), f"died after {deaths} requests"
        rejected_counts.add(len(refused))
        target.alter(ADD)
    assert rejected_counts >= {0, 1}

    target.begin()
    execute(target.client, f"TRUNCATE TABLE {target.database}.t")
    refused, rows = target.write(ids), target.rows()
    assert refused == [1003, 1010, 1011]
    target.alter(DROP)
    assert (target.write(ids), target.rows()) == (refused, rows)


def test_many_parts_do_not_make_the_table_forget_the_blocks_before_them(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_writer, "PARTS_BESIDE_BLOCKS", 5)
    monkeypatch.setattr(block_writer, "PARTS_PER_NOTE", 50)
    target.alter("MODIFY SETTING non_replicated_deduplication_window = 20")
    ids, good = block(64, *range(0, 64, 2))
    first = block_of([500, 501])
    for splits in (None, {}):
        writer = target.writer(splits)
        assert writer.insert(first, Token("first")) == ()
        assert [row for row, _ in writer.insert(block_of(ids), Token("second"))] == list(range(0, 64, 2))
        assert target.rows() == [*good, 500, 501]
    window = read_window(target.client, target.database, "t")
    assert window.blocks == block_writer.TOKENS_KEPT_FOR_PARTS
    assert target.planned == read_table_ddl(target.client, target.database, "t")


def test_a_constraint_that_is_added_after_the_block_went_in_stops_with_what_to_do(target: Target) -> None:
    ids, good = block(30, 5)
    target.alter(DROP)
    target.begin()
    assert target.write(ids) == []
    target.alter(ADD)
    with pytest.raises(InsertRefused, match=r"changed while batch 0 was in flight.*undo the change"):
        target.write(ids)
    assert len(target.rows()) == 30
    target.alter(DROP)
    assert (target.write(ids), len(target.rows())) == ([], 30)
    assert set(good) < set(target.rows())


def test_a_constraint_that_is_added_before_the_first_attempt_is_no_reason_to_stop(target: Target) -> None:
    target.alter(DROP)
    target.begin()
    target.alter(ADD)
    ids, good = block(30, 5)
    assert (target.write(ids), target.rows()) == ([1005], good)
    assert (target.write(ids), target.rows()) == ([1005], good)


def test_a_view_that_refuses_a_row_stops_the_block_whole(target: Target) -> None:
    database = target.database
    execute(
        target.client,
        f"CREATE TABLE {database}.v (id UInt64, CONSTRAINT odd CHECK id != 7) ENGINE = MergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 10000",
    )
    execute(target.client, f"CREATE MATERIALIZED VIEW {database}.mv TO {database}.v AS SELECT id FROM {database}.t")
    ids, good = block(20)
    with pytest.raises(InsertRefused, match="while pushing to view"):
        target.write(ids)
    assert read_splits(target.client, target.batch) == {}
    execute(target.client, f"ALTER TABLE {database}.v DROP CONSTRAINT odd")
    assert (target.write(ids), target.rows()) == ([], good)
    assert fetch(target.client, f"SELECT count() FROM {database}.v") == [(20,)]


def test_a_refusal_after_an_answer_that_was_lost_proves_nothing(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request succeeds but its response is lost; then the table gets a constraint."""
    target.alter(DROP)
    target.begin()
    target.alter(ADD.replace("small", "other").replace("id < 1000", "id != 77"))
    ids, _ = block(10, 5)
    send = inserts.send
    lost = iter([True])

    def lose_the_answer(*request: Any) -> None:
        send(*request)
        if next(lost, False):
            target.alter(ADD)
            raise OSError("the connection was reset")

    monkeypatch.setattr(inserts, "send", lose_the_answer)
    with pytest.raises(InsertRefused, match="changed while batch 0 was in flight"):
        target.write(ids)
    assert len(target.rows()) == 10


# The position of a row that throws: after rows of other partitions were inserted, or before any.
THROWING = {
    "sorting key": ("id UInt64, p UInt64", "PARTITION BY p ORDER BY intDiv(7000, id - 1000)"),
    "skip index": ("id UInt64, p UInt64, INDEX i intDiv(7000, id - 1000) TYPE minmax", "PARTITION BY p ORDER BY id"),
    "projection": (
        "id UInt64, p UInt64, PROJECTION x (SELECT intDiv(7000, id - 1000) AS d, count() GROUP BY d)",
        "PARTITION BY p ORDER BY id",
    ),
    "materialized": (
        "id UInt64, p UInt64, m UInt64 MATERIALIZED intDiv(7000, id - 1000)",
        "PARTITION BY p ORDER BY id",
    ),
    "partition key": ("id UInt64, p UInt64", "PARTITION BY (p, intDiv(7000, id - 1000) % 2) ORDER BY id"),
    "throwIf": ("id UInt64, p UInt64, m UInt8 MATERIALIZED throwIf(id = 1000)", "PARTITION BY p ORDER BY id"),
    "array": ("id UInt64, p UInt64, m UInt8 MATERIALIZED [1][toUInt8(id != 1000)]", "PARTITION BY p ORDER BY id"),
    "unknown code": (
        "id UInt64, p UInt64, m DateTime MATERIALIZED parseDateTime(if(id = 1000, 'x', '2024'), '%Y')",
        "PARTITION BY p ORDER BY id",
    ),
    "bad argument": (
        "id UInt64, p UInt64, m String MATERIALIZED substring(repeat('x', 9), 1, toInt64(id) - 1001)",
        "PARTITION BY p ORDER BY p",
    ),
}


@pytest.mark.parametrize("where", [where for where in THROWING if where not in {"array", "bad argument"}])
@pytest.mark.long
def test_a_row_that_throws_is_named_and_the_others_are_there_once(target: Target, where: str) -> None:
    columns, layout = THROWING[where]
    execute(target.client, f"DROP TABLE {target.database}.t")
    execute(
        target.client,
        f"CREATE TABLE {target.database}.t ({columns}) ENGINE = MergeTree {layout} "
        "SETTINGS non_replicated_deduplication_window = 10000",
    )
    target.begin()
    ids = [row if row not in {11, 26, 27} else 1000 for row in range(2, 50)]
    partitions = pa.array([row % 4 for row in range(48)], pa.uint64())
    rows = ArrowBlock(pa.table({"id": pa.array(ids, pa.uint64()), "p": partitions}))
    good = sorted(number for number in ids if number != 1000)
    for splits in (None, target.splits(), target.splits()):
        refused = target.writer(splits).insert(rows, Token(BLOCK))
        assert ([row for row, _ in refused], target.rows()) == ([9, 24, 25], good)


def test_what_is_refused_of_partitions_reaches_the_tables_behind_views_once(target: Target) -> None:
    """No row of a rejected block reaches any table, and no part of it is deduplicated against another part."""
    for name in ("seen_view", "seen", "t"):
        execute(target.client, f"DROP TABLE IF EXISTS {target.database}.{name}")
    window = "SETTINGS non_replicated_deduplication_window = 10000"
    columns, layout = THROWING["sorting key"]
    made = f"CREATE TABLE {target.database}"
    query = f"SELECT id FROM {target.database}.t"
    execute(target.client, f"{made}.t ({columns}) ENGINE = MergeTree {layout} {window}")
    execute(target.client, f"{made}.seen (id UInt64) ENGINE = MergeTree ORDER BY id PARTITION BY id % 3 {window}")
    execute(
        target.client,
        f"CREATE MATERIALIZED VIEW {target.database}.seen_view TO {target.database}.seen AS {query}",
    )
    target.begin()
    ids = [row if row not in {11, 26, 27} else 1000 for row in range(2, 50)]
    partitions = pa.array([row % 4 for row in range(48)], pa.uint64())
    rows = ArrowBlock(pa.table({"id": pa.array(ids, pa.uint64()), "p": partitions}))
    good = sorted(number for number in ids if number != 1000)
    for splits in (None, target.splits(), target.splits()):
        assert [row for row, _ in target.writer(splits).insert(rows, Token(BLOCK))] == [9, 24, 25]
        seen = target.client.query(f"SELECT id FROM {target.database}.seen ORDER BY id").result_rows
        assert (target.rows(), [id_ for (id_,) in seen]) == (good, good)


def test_a_block_of_many_partitions_goes_in_by_parts(target: Target) -> None:
    """A batch's tokens depend on the limit, so it must hold although the user's settings allow more partitions."""
    execute(target.client, f"DROP TABLE {target.database}.t")
    execute(
        target.client,
        f"CREATE TABLE {target.database}.t (id UInt64) ENGINE = MergeTree PARTITION BY id % 150 ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 10000",
    )
    target.begin()
    target.client.set_client_setting("max_partitions_per_insert_block", 0)
    ids = list(range(600))
    assert (target.write(ids), target.rows()) == ([], ids)
    assert read_splits(target.client, target.batch).keys() == {f"{target.batch.checkpoint_id}/{BLOCK}"}
    assert (target.write(ids), target.rows()) == ([], ids)


def test_an_error_that_a_block_without_rows_has_too_is_the_tables(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise DatabaseError("Code: 123456. DB::Exception: no", code=123456)

    monkeypatch.setattr(inserts, "send", refuse)
    with pytest.raises(InsertRefused, match=r"t accepts no rows: no \(code 123456\)"):
        target.write([1, 2])


def test_an_outage_in_the_middle_is_told_apart_from_a_refusal(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def insert(*_: object) -> None:
        raise ClickHouseUnreachable("gone")

    monkeypatch.setattr(Dying, "insert", insert)
    with pytest.raises(ClickHouseUnreachable):
        target.write([1])


def test_rows_are_named_by_their_place_in_the_block() -> None:
    assert RefusedRow(3, "why").row == 3
