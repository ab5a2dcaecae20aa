"""A server that dies between an insert's token and its rows: what it says afterwards must lose and double nothing.

The moment itself is not to be hit from outside; what it leaves on the disk is made instead, by removing the part that
was not put in place, or the token that was not written down.
"""

import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.ledger import LEDGER, LedgerRow, Outcomes, insert_ledger_row
from glassflow_dagster.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.clickhouse.client import connect
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.server_run import ServerRun, read_server_run
from glassflow_dagster.config.model.connections import ClickHouseConnection
from glassflow_dagster.local.ports import free_port
from tests.faults.http_proxy import Exchange, HttpProxy, Rule
from tests.local.conftest import Server

pytestmark = pytest.mark.servers

WINDOW = "SETTINGS non_replicated_deduplication_window = 1000"
_numbers = count()


class Mortal:
    """A server that dies in an insert, and what is then on its disk; clients reach it through a proxy."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder, free_port())
        # What a pipeline needs, and not what runs at the server.
        self.server.add_user("writer", grants=["GRANT SELECT, INSERT ON d.*"])
        self.server.start()
        self.proxy = HttpProxy(free_port(), self.server.port)
        self.said: list[str] = []
        self.direct = self._connect(self.server.port)
        self.client = self._connect(self.proxy.port)
        # A database of the kind that servers have; the engine's `default` hides where tables lie.
        self.direct.command("CREATE DATABASE d")

    @staticmethod
    def _connect(port: int, username: str = "default") -> Client:
        return connect(
            ClickHouseConnection(host="127.0.0.1", port=9000, http_port=port, database="d", username=username)
        )

    def table(self, columns: str, engine: str) -> str:
        name = f"t{next(_numbers)}"
        self.direct.command(f"CREATE TABLE d.{name} ({columns}) ENGINE = {engine} {WINDOW}")
        return name

    def inserter(self, before: ServerRun | None = None) -> Inserter:
        """Give the inserter of a batch that begins now, or of the repetition of one that began with another run."""
        begun = before or read_server_run(self.direct)
        return Inserter(self.client, 60, self.said.append, begun=begun, repeated=before is not None)

    def inserter_of_writer(self) -> Inserter:
        """Do as `inserter`, for the user who does not see what runs at the server."""
        client = self._connect(self.proxy.port, "writer")
        return Inserter(client, 60, self.said.append, begun=read_server_run(client))

    def rows(self, table: str, what: str = "*") -> list[tuple[object, ...]]:
        found = self.direct.query(f"SELECT {what} FROM d.{table} ORDER BY ALL").result_rows
        return [tuple(row) for row in found]

    def dies_in_an_insert(self, leave: Callable[[], None], times: int = 1, skip: int = 0) -> Rule:
        """Let the server do an insert and die; `leave` makes what is then on its disk."""

        def act(exchange: Exchange) -> None:
            exchange.forward()
            self.die(leave)
            exchange.hang_up()

        return self.proxy.fail(Rule(act, times=times, skip=skip))

    def die(self, leave: Callable[[], None]) -> None:
        self._parts = {
            table: [Path(path) for (path,) in found]
            for table in ("t", *(name for (name,) in self.direct.query("SHOW TABLES FROM d").result_rows))
            if (found := self._paths(table))
        }
        self.server.end(signal.SIGKILL)
        leave()
        self.server.start()

    def without_part(self, table: str, partition: str = "") -> Callable[[], None]:
        """The newest part was not put in place; its token is known."""

        def leave() -> None:
            shutil.rmtree([part for part in self._parts[table] if part.name.startswith(partition)][-1])

        return leave

    def without_tokens(self, table: str) -> Callable[[], None]:
        """The part is in place; no token was written down."""

        def leave() -> None:
            for file in self._parts[table][-1].parent.glob("deduplication_logs/*"):
                file.unlink()

        return leave

    def _paths(self, table: str) -> list[tuple[str]]:
        query = (
            "SELECT path FROM system.parts WHERE active AND database = 'd' AND table = {t:String} "
            "ORDER BY min_block_number"
        )
        return [(path,) for (path,) in self.direct.query(query, parameters={"t": table}).result_rows]

    def close(self) -> None:
        self.proxy.close()
        self.server.end()


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    found = Mortal(tmp_path_factory.mktemp("mortal"))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def behaves(mortal: Mortal) -> Iterator[None]:
    mortal.said.clear()
    yield
    mortal.proxy.behave()


def block(*ids: int, partition: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([partition] * len(ids), pa.int64())})


PLAIN = ("id Int64, p Int64", "MergeTree PARTITION BY p ORDER BY id")


def test_a_user_who_may_not_see_what_runs_is_told_so_and_gets_the_rows(mortal: Mortal) -> None:
    table = mortal.table(*PLAIN)
    inserter = mortal.inserter_of_writer()
    mortal.dies_in_an_insert(mortal.without_part(table))
    inserter.insert("d", table, block(1, 2, 3), Token("a"))
    assert mortal.rows(table, "id") == [(1,), (2,), (3,)]
    assert any("grant SELECT ON system.processes to the pipeline's user" in text for text in mortal.said)


def test_rows_that_were_lost_behind_their_token_are_sent_again(mortal: Mortal) -> None:
    table = mortal.table(*PLAIN)
    rule = mortal.dies_in_an_insert(mortal.without_part(table))
    mortal.inserter().insert("d", table, block(1, 2, 3), Token("a"))
    assert (rule.hits, mortal.rows(table, "id")) == (1, [(1,), (2,), (3,)])
    # A repetition that knows of no restart is dropped, as the first name is known by now.
    mortal.inserter(read_server_run(mortal.direct)).insert("d", table, block(1, 2, 3), Token("a"))
    assert mortal.rows(table, "id") == [(1,), (2,), (3,)]


def test_rows_that_are_there_without_their_token_are_not_sent_again(mortal: Mortal) -> None:
    table = mortal.table(*PLAIN)
    mortal.dies_in_an_insert(mortal.without_tokens(table))
    mortal.inserter().insert("d", table, block(1, 2, 3), Token("a"))
    assert mortal.rows(table, "id") == [(1,), (2,), (3,)]


def test_of_a_block_of_several_partitions_only_the_lost_one_is_sent(mortal: Mortal) -> None:
    table = mortal.table(*PLAIN)
    whole = pa.concat_tables([block(1, 2, partition=7), block(3, 4, partition=8), block(5, partition=9)])
    mortal.dies_in_an_insert(mortal.without_part(table, "8_"))
    mortal.inserter().insert("d", table, whole, Token("a"))
    assert mortal.rows(table, "p, id") == [(7, 1), (7, 2), (8, 3), (8, 4), (9, 5)]


def test_a_repetition_by_another_process_does_not_believe_a_server_that_has_restarted(mortal: Mortal) -> None:
    table = mortal.table(*PLAIN)
    first = mortal.inserter()
    first.insert("d", table, block(1, 2), Token("a"))
    mortal.die(mortal.without_part(table))
    assert mortal.rows(table) == []
    mortal.inserter(first.begun).insert("d", table, block(1, 2), Token("a"))
    assert mortal.rows(table, "id") == [(1,), (2,)]
    # Once more: they are found.
    mortal.inserter(first.begun).insert("d", table, block(1, 2), Token("a"))
    assert mortal.rows(table, "id") == [(1,), (2,)]


def test_a_server_that_dies_again_in_the_second_name_is_asked_under_a_third(mortal: Mortal) -> None:
    table = mortal.table(*PLAIN)
    deaths = iter([mortal.without_part(table), lambda: None, mortal.without_part(table)])
    # The first name, which is lost; the first name again, which is dropped; the second name, which is lost, too.
    mortal.dies_in_an_insert(lambda: next(deaths)(), times=3)  # noqa: PLW0108 - the next one at each death
    mortal.inserter().insert("d", table, block(1, 2), Token("a"))
    assert mortal.rows(table, "id") == [(1,), (2,)]


def test_equal_rows_of_other_blocks_are_not_taken_for_those_that_are_lost(mortal: Mortal) -> None:
    table = mortal.table(*PLAIN)
    inserter = mortal.inserter()
    inserter.insert("d", table, block(1, 2), Token("a"))
    mortal.dies_in_an_insert(mortal.without_part(table))
    inserter.insert("d", table, block(1, 2, 2, 3), Token("b"))
    assert mortal.rows(table, "id") == [(1,), (1,), (2,), (2,), (2,), (3,)]


def test_a_view_that_had_not_got_a_block_gets_it(mortal: Mortal) -> None:
    table = mortal.table(*PLAIN)
    sums = mortal.table("n UInt64, s Int64", "MergeTree ORDER BY n")
    select = f"SELECT count() AS n, sum(id) AS s FROM d.{table}"
    mortal.direct.command(f"CREATE MATERIALIZED VIEW d.v{sums} TO d.{sums} AS {select}")

    def leave() -> None:
        mortal.without_part(sums)()
        mortal.without_tokens(sums)()

    mortal.dies_in_an_insert(leave)
    mortal.inserter().insert("d", table, block(1, 2, 3), Token("a"))
    assert (mortal.rows(table, "id"), mortal.rows(sums)) == ([(1,), (2,), (3,)], [(3, 6)])


def test_of_an_engine_that_replaces_rows_one_row_tells_that_the_block_was_there(mortal: Mortal) -> None:
    table = mortal.table("id Int64, p Int64", "ReplacingMergeTree ORDER BY id")
    inserter = mortal.inserter()
    inserter.insert("d", table, block(1, 2, partition=1), Token("a"))
    mortal.direct.command(f"INSERT INTO d.{table} VALUES (1, 9)")
    mortal.direct.command(f"OPTIMIZE TABLE d.{table} FINAL")
    mortal.die(lambda: None)
    mortal.inserter(inserter.begun).insert("d", table, block(1, 2, partition=1), Token("a"))
    assert mortal.rows(table) == [(1, 9), (2, 1)]


def test_of_an_engine_that_sums_rows_the_token_decides_and_it_is_said(mortal: Mortal) -> None:
    table = mortal.table("id Int64, p Int64", "SummingMergeTree ORDER BY id")
    inserter = mortal.inserter()
    inserter.insert("d", table, block(1, 1, partition=5), Token("a"))
    mortal.die(lambda: None)
    mortal.inserter(inserter.begun).insert("d", table, block(1, 1, partition=5), Token("a"))
    assert mortal.rows(table, "sum(p)") == [(10,)]
    assert any("rows of a SummingMergeTree table cannot be searched for" in text for text in mortal.said)


def test_a_row_of_the_ledger_that_was_lost_is_written_again(mortal: Mortal) -> None:
    ensure_bookkeeping(mortal.direct, "d")
    row = LedgerRow(
        pipeline_id="p", checkpoint_id=str(uuid4()), batch_id=3, batch_time_ms=1, definition="x",
        offsets={"t": {0: (1, 5)}}, rows_before=0, outcomes=Outcomes(read=4, written=4), blocks=1, bytes=9,
    )  # fmt: skip
    mortal.dies_in_an_insert(mortal.without_part(LEDGER.name))
    insert_ledger_row(mortal.inserter(), "d", row, Token("ledger"))
    assert mortal.rows(LEDGER.name, "batch_id, read") == [(3, 4)]


KINDS = {
    "i": ("Int64", pa.array([1, 2], pa.int64())),
    "u": ("UInt256", pa.array(["1", "2"])),
    "f": ("Float64", pa.array([float("nan"), -0.0])),
    "s": ("LowCardinality(Nullable(String))", pa.array(["x", None])),
    "e": ("Enum8('a' = 1, 'b' = 2)", pa.array(["a", "b"])),
    "t": ("DateTime64(6, 'UTC')", pa.array([1, 2], pa.timestamp("us", "UTC"))),
    "d": ("Decimal(38, 4)", pa.array([1, 2]).cast(pa.decimal128(38, 4))),
    "a": ("Array(Nullable(Int8))", pa.array([[1, None], []], pa.list_(pa.int8()))),
    "m": ("Map(String, Int32)", pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32()))),
    "n": (
        "Tuple(x Int8, `y z` String)",
        pa.array([{"x": 1, "y z": "q"}] * 2, pa.struct([("x", pa.int8()), ("y z", pa.string())])),
    ),
    "j": ("JSON", pa.array(['{"b": 1, "a": [1]}', "{}"])),
    "q": ("UUID", pa.array(["61f0c404-5cb3-11e7-907b-a6006ad3dba0"] * 2)),
    "p": ("IPv6", pa.array(["::1"] * 2)),
}


@pytest.mark.parametrize("key", ["(s, i)", "(f, toDate(t))", "(filled, i)"])
def test_rows_of_every_type_are_found_whatever_the_sorting_key(mortal: Mortal, key: str) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
    engine = f"MergeTree PARTITION BY (toYYYYMM(made), e) ORDER BY {key}"
    name = f"t{next(_numbers)}"
    mortal.direct.command(
        f"CREATE TABLE d.{name} ({columns}, filled Date DEFAULT toDate(made), made DateTime MATERIALIZED "
        f"toDateTime(t)) ENGINE = {engine} {WINDOW}, allow_nullable_key = 1"
    )
    values = pa.table({name: array for name, (_, array) in KINDS.items()})
    inserter = mortal.inserter()
    mortal.dies_in_an_insert(mortal.without_tokens(name))
    inserter.insert("d", name, values, Token("a"))
    assert mortal.rows(name, "i") == [(1,), (2,)]
    mortal.dies_in_an_insert(mortal.without_part(name))
    others = values.set_column(0, "i", pa.array([3, 4], pa.int64()))
    inserter.insert("d", name, others, Token("b"))
    assert mortal.rows(name, "i") == [(1,), (2,), (3,), (4,)]
