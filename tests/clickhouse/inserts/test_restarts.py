"""A server that crashes after storing an insert's token or its rows, but not both: no row may be lost or duplicated.

The crash cannot be timed from outside. The tests produce the files that it leaves, by removing a part that was not
committed, or a token that was not stored.
"""

import shutil
import signal
from collections import defaultdict
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
from glassflow_dagster.clickhouse.inserts.block import ArrowBlock, Block, RowBinaryBlock
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


class CrashingServer:
    """A server that crashes in an insert with chosen files on its disk; clients reach it through a proxy."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder, free_port())
        # Enough rights for a pipeline, but not for reading the server's processes.
        self.server.add_user("writer", grants=["GRANT SELECT, INSERT ON d.*"])
        self.server.start()
        self.proxy = HttpProxy(free_port(), self.server.port)
        self.messages: list[str] = []
        self.direct = self._connect(self.server.port)
        self.client = self._connect(self.proxy.port)
        # An Atomic database, as servers have; the embedded engine's `default` does not show where tables are stored.
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
        """Return the inserter of a new batch, or of a repetition of one that began with the server run `before`."""
        begun = before or read_server_run(self.direct)
        return Inserter(self.client, 60, self.messages.append, begun=begun, repeated=before is not None)

    def inserter_without_rights(self) -> Inserter:
        """Return the inserter of a new batch for a user who may not see when the server started."""
        client = self._connect(self.proxy.port, "writer")
        return Inserter(client, 60, self.messages.append, begun=read_server_run(client))

    def rows(self, table: str, what: str = "*") -> list[tuple[object, ...]]:
        found = self.direct.query(f"SELECT {what} FROM d.{table} ORDER BY ALL").result_rows
        return [tuple(row) for row in found]

    def crash_in_insert(self, *damages: Callable[[], None]) -> Rule:
        """Let the server execute an insert and crash, once for each damage, which changes the files on its disk."""
        remaining = iter(damages)

        def act(exchange: Exchange) -> None:
            exchange.forward()
            self.crash(next(remaining))
            exchange.hang_up()

        return self.proxy.fail(Rule(act, times=len(damages)))

    def crash(self, damage: Callable[[], None]) -> None:
        """Crash the server, change the files on its disk, and start it again."""
        self._parts = self._active_parts()
        self.server.end(signal.SIGKILL)
        damage()
        self.server.start()

    def lose_part(self, table: str, partition: str = "") -> Callable[[], None]:
        """Remove the newest part, so that only its token is left."""

        def damage() -> None:
            shutil.rmtree(self._newest_part(table, partition))

        return damage

    def lose_tokens(self, table: str) -> Callable[[], None]:
        """Remove the tokens, so that only the part is left."""

        def damage() -> None:
            for file in self._parts[table][-1].parent.glob("deduplication_logs/*"):
                file.unlink()

        return damage

    def lose_commit(self, table: str, partition: str = "") -> Callable[[], None]:
        """Remove the newest part of a partition and its token, as if the server had died before that partition."""

        def damage() -> None:
            part = self._newest_part(table, partition)
            shutil.rmtree(part)
            for file in part.parent.glob("deduplication_logs/*"):
                lines = file.read_text().splitlines(keepends=True)
                file.write_text("".join(line for line in lines if part.name not in line))

        return damage

    def _newest_part(self, table: str, partition: str) -> Path:
        """Return the newest part of a partition (a prefix of its name), of those before the crash."""
        return [part for part in self._parts[table] if part.name.startswith(partition)][-1]

    def _active_parts(self) -> dict[str, list[Path]]:
        """Return the folders of each table's active parts, oldest first."""
        query = "SELECT table, path FROM system.parts WHERE active AND database = 'd' ORDER BY min_block_number"
        parts = defaultdict(list)
        for table, path in self.direct.query(query).result_rows:
            parts[table].append(Path(path))
        return parts

    def close(self) -> None:
        self.proxy.close()
        self.server.end()


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashingServer]:
    """Share one server: a start takes seconds."""
    found = CrashingServer(tmp_path_factory.mktemp("mortal"))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def reset_faults(crashing: CrashingServer) -> Iterator[None]:
    """Remove the proxy's rules after each test."""
    crashing.messages.clear()
    yield
    crashing.proxy.behave()


def block(*ids: int, partition: int = 0) -> ArrowBlock:
    return ArrowBlock(pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([partition] * len(ids), pa.int64())}))


PLAIN = ("id Int64, p Int64", "MergeTree PARTITION BY p ORDER BY id")


def block_of_three_partitions() -> ArrowBlock:
    """Return the ids 1 to 5 in the partitions 7, 8 and 9."""
    parts = (block(1, 2, partition=7), block(3, 4, partition=8), block(5, partition=9))
    return ArrowBlock(pa.concat_tables([part.table for part in parts]))


def table_with_view(crashing: CrashingServer) -> tuple[str, str]:
    """Create a table, and a view that counts and sums each block; return the table and the target of the view."""
    table, sums = crashing.table(*PLAIN), crashing.table("n UInt64, s Int64", "MergeTree ORDER BY n")
    select = f"SELECT count() AS n, sum(id) AS s FROM d.{table}"
    crashing.direct.command(f"CREATE MATERIALIZED VIEW d.v{sums} TO d.{sums} AS {select}")
    return table, sums


def test_a_user_who_may_not_see_what_runs_is_told_so_and_gets_the_rows(crashing: CrashingServer) -> None:
    table = crashing.table(*PLAIN)
    inserter = crashing.inserter_without_rights()
    crashing.crash_in_insert(crashing.lose_part(table))
    inserter.insert("d", table, block(1, 2, 3), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,), (3,)]
    assert any("grant SELECT ON system.processes to the pipeline's user" in text for text in crashing.messages)


def test_rows_that_were_lost_behind_their_token_are_sent_again(crashing: CrashingServer) -> None:
    table = crashing.table(*PLAIN)
    rule = crashing.crash_in_insert(crashing.lose_part(table))
    crashing.inserter().insert("d", table, block(1, 2, 3), Token("a"))
    assert (rule.hits, crashing.rows(table, "id")) == (1, [(1,), (2,), (3,)])
    # A repetition that knows of no restart is deduplicated: the first token is stored by now.
    crashing.inserter(read_server_run(crashing.direct)).insert("d", table, block(1, 2, 3), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,), (3,)]


def test_rows_that_are_there_without_their_token_are_not_sent_again(crashing: CrashingServer) -> None:
    table = crashing.table(*PLAIN)
    crashing.crash_in_insert(crashing.lose_tokens(table))
    crashing.inserter().insert("d", table, block(1, 2, 3), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,), (3,)]


def test_of_a_block_of_several_partitions_only_the_lost_one_is_sent(crashing: CrashingServer) -> None:
    table = crashing.table(*PLAIN)
    crashing.crash_in_insert(crashing.lose_part(table, "8_"))
    crashing.inserter().insert("d", table, block_of_three_partitions(), Token("a"))
    assert crashing.rows(table, "p, id") == [(7, 1), (7, 2), (8, 3), (8, 4), (9, 5)]


def test_a_repetition_by_another_process_does_not_believe_a_server_that_has_restarted(crashing: CrashingServer) -> None:
    table = crashing.table(*PLAIN)
    first = crashing.inserter()
    first.insert("d", table, block(1, 2), Token("a"))
    crashing.crash(crashing.lose_part(table))
    assert crashing.rows(table) == []
    crashing.inserter(first.begun).insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]
    # Once more: the rows are found.
    crashing.inserter(first.begun).insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]


def test_after_a_crash_with_the_second_token_a_third_is_used(crashing: CrashingServer) -> None:
    table = crashing.table(*PLAIN)
    # The first token, whose rows are lost; the first token again, deduplicated; the second token, lost as well.
    crashing.crash_in_insert(crashing.lose_part(table), lambda: None, crashing.lose_part(table))
    crashing.inserter().insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]


def test_equal_rows_of_other_blocks_are_not_taken_for_those_that_are_lost(crashing: CrashingServer) -> None:
    table = crashing.table(*PLAIN)
    inserter = crashing.inserter()
    inserter.insert("d", table, block(1, 2), Token("a"))
    crashing.crash_in_insert(crashing.lose_part(table))
    inserter.insert("d", table, block(1, 2, 2, 3), Token("b"))
    assert crashing.rows(table, "id") == [(1,), (1,), (2,), (2,), (2,), (3,)]


def test_a_view_that_had_not_got_a_block_gets_it(crashing: CrashingServer) -> None:
    table, sums = table_with_view(crashing)
    crashing.crash_in_insert(crashing.lose_commit(sums))
    crashing.inserter().insert("d", table, block(1, 2, 3), Token("a"))
    assert (crashing.rows(table, "id"), crashing.rows(sums)) == ([(1,), (2,), (3,)], [(3, 6)])


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_view_gets_the_whole_block_of_which_the_table_had_some_partitions(
    crashing: CrashingServer, deaths: int
) -> None:
    table, sums = table_with_view(crashing)

    def died_after_the_first_partition() -> None:
        for partition in ("8_", "9_"):
            crashing.lose_commit(table, partition)()
        crashing.lose_commit(sums)()

    # The second time it dies when the table has all of the block, and the view nothing.
    damages = (died_after_the_first_partition, crashing.lose_commit(sums))
    rule = crashing.crash_in_insert(*damages[:deaths])
    crashing.inserter().insert("d", table, block_of_three_partitions(), Token("a"))
    assert rule.hits == deaths
    assert (crashing.rows(table, "id"), crashing.rows(sums)) == ([(1,), (2,), (3,), (4,), (5,)], [(5, 15)])
    assert not any("views" in text for text in crashing.messages)


def test_that_a_view_may_have_rows_twice_is_said(crashing: CrashingServer) -> None:
    """The table has the token without the rows; the view gets them with the block's own token and with the next one."""
    table, sums = table_with_view(crashing)

    def damage() -> None:
        crashing.lose_part(table)()
        crashing.lose_commit(sums)()

    crashing.crash_in_insert(damage)
    crashing.inserter().insert("d", table, block(1, 2, 3), Token("a"))
    assert (crashing.rows(table, "id"), crashing.rows(sums)) == ([(1,), (2,), (3,)], [(3, 6), (3, 6)])
    assert any(f"materialized views of d.{table} may have 3 rows twice" in text for text in crashing.messages)


def test_of_an_engine_that_replaces_rows_one_row_tells_that_the_block_was_there(crashing: CrashingServer) -> None:
    table = crashing.table("id Int64, p Int64", "ReplacingMergeTree ORDER BY id")
    inserter = crashing.inserter()
    inserter.insert("d", table, block(1, 2, partition=1), Token("a"))
    crashing.direct.command(f"INSERT INTO d.{table} VALUES (1, 9)")
    crashing.direct.command(f"OPTIMIZE TABLE d.{table} FINAL")
    crashing.crash(lambda: None)
    crashing.inserter(inserter.begun).insert("d", table, block(1, 2, partition=1), Token("a"))
    assert crashing.rows(table) == [(1, 9), (2, 1)]


def test_of_an_engine_that_sums_rows_the_token_decides_and_it_is_said(crashing: CrashingServer) -> None:
    table = crashing.table("id Int64, p Int64", "SummingMergeTree ORDER BY id")
    inserter = crashing.inserter()
    inserter.insert("d", table, block(1, 1, partition=5), Token("a"))
    crashing.crash(lambda: None)
    crashing.inserter(inserter.begun).insert("d", table, block(1, 1, partition=5), Token("a"))
    assert crashing.rows(table, "sum(p)") == [(10,)]
    assert any("rows of a SummingMergeTree table cannot be searched for" in text for text in crashing.messages)


def test_a_row_of_the_ledger_that_was_lost_is_written_again(crashing: CrashingServer) -> None:
    ensure_bookkeeping(crashing.direct, "d")
    row = LedgerRow(
        pipeline_id="p", checkpoint_id=str(uuid4()), batch_id=3, batch_time_ms=1, definition="x",
        offsets={"t": {0: (1, 5)}}, rows_before=0, outcomes=Outcomes(read=4, written=4), blocks=1, bytes=9,
    )  # fmt: skip
    crashing.crash_in_insert(crashing.lose_part(LEDGER.name))
    insert_ledger_row(crashing.inserter(), "d", row, Token("ledger"))
    assert crashing.rows(LEDGER.name, "batch_id, read") == [(3, 4)]


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


def as_row_binary(crashing: CrashingServer, values: pa.Table) -> RowBinaryBlock:
    """Return the rows as the server itself writes them in RowBinary."""
    name = f"t{next(_numbers)}"
    crashing.direct.command(
        f"CREATE TABLE d.{name} ({', '.join(f'{n} {k}' for n, (k, _) in KINDS.items())}) ENGINE Memory"
    )
    Inserter(crashing.direct, 60, print).insert("d", name, ArrowBlock(values), Token(name))
    described = crashing.direct.query(f"SELECT name, type FROM system.columns WHERE table = '{name}' ORDER BY position")
    query = f"SELECT * FROM d.{name} WHERE i = {{i:Int64}} FORMAT RowBinary"
    settings = {"output_format_binary_write_json_as_string": 1}
    rows = [crashing.direct.raw_query(query, {"i": i}, settings) for i in values.column("i").to_pylist()]
    return RowBinaryBlock(tuple(map(tuple, described.result_rows)), pa.chunked_array([pa.array(rows, pa.binary())]))


@pytest.mark.parametrize("block_of", [lambda _, values: ArrowBlock(values), as_row_binary], ids=["arrow", "row binary"])
@pytest.mark.parametrize("key", ["(s, i)", "(f, toDate(t))", "(filled, i)"])
def test_rows_of_every_type_are_found_whatever_the_sorting_key(
    crashing: CrashingServer, key: str, block_of: Callable[[CrashingServer, pa.Table], Block]
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
    engine = f"MergeTree PARTITION BY (toYYYYMM(made), e) ORDER BY {key}"
    name = f"t{next(_numbers)}"
    crashing.direct.command(
        f"CREATE TABLE d.{name} ({columns}, filled Date DEFAULT toDate(made), made DateTime MATERIALIZED "
        f"toDateTime(t)) ENGINE = {engine} {WINDOW}, allow_nullable_key = 1"
    )
    values = pa.table({name: array for name, (_, array) in KINDS.items()})
    inserter, block = crashing.inserter(), block_of(crashing, values)
    crashing.crash_in_insert(crashing.lose_tokens(name))
    inserter.insert("d", name, block, Token("a"))
    assert crashing.rows(name, "i") == [(1,), (2,)]
    block = block_of(crashing, values.set_column(0, "i", pa.array([3, 4], pa.int64())))
    crashing.crash_in_insert(crashing.lose_part(name))
    inserter.insert("d", name, block, Token("b"))
    assert crashing.rows(name, "i") == [(1,), (2,), (3,), (4,)]
