"""A server that crashes after storing an insert's token or its rows, but not both: no row may be lost or duplicated.

The crash cannot be timed from outside. The tests produce the files that it leaves, by removing a part that was not
committed, or a token that was not stored.
"""

import shutil
import signal
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER, LedgerRow, insert_ledger_row
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import InsertRefused
from glassflow_dagster.stores.clickhouse.inserts import interrupted
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock, Block, RowBinaryBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.interrupted import MutatedRows
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.server_run import read_server_run
from glassflow_dagster.stores.clickhouse.table_identity import IDENTITY_COLUMNS, TableIdentity
from tests.faults.http_proxy import Exchange, HttpProxy, Rule
from tests.local.conftest import Server
from tests.support.waiting import wait_until

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

    def inserter(self, before: BatchBegin | None = None, mutated_rows: MutatedRows | None = None) -> Inserter:
        """Return the inserter of a new batch, or of a repetition of one that began with the server as in `before`."""
        return Inserter(
            self.client, 60, self.messages.append,
            begin=before or self.begin(), repeated=before is not None, mutated_rows=mutated_rows,
        )  # fmt: skip

    def begin(self) -> BatchBegin:
        """Return the server as it is now, and all tables of the database."""
        query = f"SELECT name, {IDENTITY_COLUMNS} FROM system.tables WHERE database = 'd'"
        tables = {f"d.{name}": TableIdentity.of(*of) for name, *of in self.direct.query(query).result_rows}
        return BatchBegin(read_server_run(self.direct), round(time.time() * 1000), tables)

    def inserter_without_rights(self) -> Inserter:
        """Return the inserter of a new batch for a user who may not see when the server started."""
        client = self._connect(self.proxy.port, "writer")
        return Inserter(client, 60, self.messages.append, begin=BatchBegin(read_server_run(client)))

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
    crashing.inserter(crashing.begin()).insert("d", table, block(1, 2, 3), Token("a"))
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
    crashing.inserter(first.begin).insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]
    # Once more: the rows are found.
    crashing.inserter(first.begin).insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]


def test_each_run_of_the_server_has_a_token_of_its_own_for_rows_that_are_lost(crashing: CrashingServer) -> None:
    """Two crashes lose rows: with the block's own token, and with that of the run after the first crash."""
    table = crashing.table(*PLAIN)
    sent: list[str] = []

    def act(exchange: Exchange) -> None:
        (token,) = parse_qs(urlsplit(exchange.path).query)["insert_deduplication_token"]
        answer = exchange.forward()
        is_lost = token not in sent and len(set(sent)) < 2
        sent.append(token)
        if not is_lost:
            exchange.answer(answer)
            return
        crashing.crash(crashing.lose_part(table))
        exchange.hang_up()

    crashing.proxy.fail(Rule(act, times=100))
    crashing.inserter().insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]
    own, first, second = dict.fromkeys(sent)
    assert (own, sent) == ("a", ["a", "a", first, "a", second])
    assert {token.rpartition("-")[0] for token in (first, second)} == {"a/again"}


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


@pytest.mark.parametrize("engine", ["MergeTree", "ReplacingMergeTree"])
@pytest.mark.parametrize(
    ("filled", "key"),
    [
        ("at DateTime64(9) DEFAULT now64(9)", "(at, id)"),
        ("at UInt64 DEFAULT rand64()", "(at, id)"),
        ("at DateTime64(9) MATERIALIZED now64(9)", "(id, at)"),
        ("at Date DEFAULT today()", "(toYYYYMM(at), id)"),
    ],
)
def test_rows_are_found_whose_sorting_key_has_values_of_the_server(
    crashing: CrashingServer, filled: str, key: str, engine: str
) -> None:
    table = crashing.table(f"{filled}, id Int64, p Int64", f"{engine} ORDER BY {key}")
    crashing.crash_in_insert(crashing.lose_tokens(table))
    crashing.inserter().insert("d", table, block(1, 2, 3), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,), (3,)]


def test_values_are_left_out_that_a_column_s_own_ttl_removes(crashing: CrashingServer) -> None:
    table = crashing.table(
        "id Int64, p Int64 TTL at + INTERVAL 1 SECOND, at DateTime DEFAULT '2020-01-01 00:00:00'",
        "MergeTree ORDER BY id",
    )
    inserter = crashing.inserter()
    inserter.insert("d", table, block(1, 2, partition=7), Token("a"))
    crashing.direct.command(f"OPTIMIZE TABLE d.{table} FINAL")
    assert crashing.rows(table, "id, p") == [(1, 0), (2, 0)]
    crashing.crash(crashing.lose_tokens(table))
    crashing.inserter(inserter.begin).insert("d", table, block(1, 2, partition=7), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]


def test_of_a_table_that_sums_up_expired_rows_the_token_decides_and_it_is_said(crashing: CrashingServer) -> None:
    table = crashing.table(
        "id Int64, p Int64, at DateTime DEFAULT '2020-01-01 00:00:00'",
        "MergeTree ORDER BY id TTL at + INTERVAL 1 DAY GROUP BY id SET p = sum(p)",
    )
    inserter = crashing.inserter()
    inserter.insert("d", table, block(1, 1, partition=5), Token("a"))
    crashing.direct.command(f"OPTIMIZE TABLE d.{table} FINAL")
    crashing.crash(lambda: None)
    crashing.inserter(inserter.begin).insert("d", table, block(1, 1, partition=5), Token("a"))
    assert crashing.rows(table, "id, p") == [(1, 10)]
    assert any("cannot be searched for" in text for text in crashing.messages)


def test_of_equal_rows_of_an_engine_that_replaces_rows_one_is_enough(crashing: CrashingServer) -> None:
    table = crashing.table("id Int64, p Int64", "ReplacingMergeTree ORDER BY id")
    crashing.crash_in_insert(crashing.lose_tokens(table))
    crashing.inserter().insert("d", table, block(1, 1), Token("a"))
    assert crashing.rows(table, "id") == [(1,)]


# Each of them leaves rows of the block that cannot be told from rows of other blocks, or none.
MUTATIONS = (
    "ALTER TABLE d.{} DELETE WHERE id = 2",
    "DELETE FROM d.{} WHERE 1",
    "ALTER TABLE d.{} UPDATE p = 9 WHERE 1",
)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("mutated_rows", ["written", "missing", None])
def test_rows_that_a_mutation_may_have_removed_are_decided_by_the_operator(
    crashing: CrashingServer, mutation: str, mutated_rows: MutatedRows | None
) -> None:
    table = crashing.table("id Int64, p Int64", "MergeTree ORDER BY id")
    first = crashing.inserter()
    first.insert("d", table, block(1, 2, 3), Token("a"))
    crashing.direct.command(mutation.format(table), settings={"mutations_sync": 1})
    before = crashing.rows(table)
    crashing.crash(lambda: None)
    again = crashing.inserter(first.begin, mutated_rows)
    if mutated_rows is None:
        with pytest.raises(InsertRefused, match=rf"d\.{table}: 3 rows .* changed since .*--mutated-rows written"):
            again.insert("d", table, block(1, 2, 3), Token("a"))
    else:
        again.insert("d", table, block(1, 2, 3), Token("a"))
    sent_again = [(1, 0), (2, 0), (3, 0)] if mutated_rows == "missing" else []
    assert crashing.rows(table) == sorted([*before, *sent_again])


@pytest.mark.parametrize("mutation", ["ALTER TABLE d.{} DELETE WHERE id = 2", "DELETE FROM d.{} WHERE id > 1"])
def test_one_row_proves_its_block_where_no_other_record_makes_an_equal_one(
    crashing: CrashingServer, mutation: str
) -> None:
    table = crashing.table("id Int64, p Int64", "MergeTree ORDER BY id")
    first = crashing.inserter()
    rows = replace(as_row_binary_of(block(1, 2, 3)), is_distinct=True)
    first.insert("d", table, rows, Token("a"))
    crashing.direct.command(mutation.format(table), settings={"mutations_sync": 1})
    before = crashing.rows(table)
    crashing.crash(crashing.lose_tokens(table))
    crashing.inserter(first.begin).insert("d", table, rows, Token("a"))
    assert crashing.rows(table) == before


def test_a_mutation_that_changes_no_rows_stops_nothing(crashing: CrashingServer) -> None:
    table = crashing.table("id Int64, p Int64, INDEX i p TYPE minmax", "MergeTree ORDER BY id")
    first = crashing.inserter()
    first.insert("d", table, block(1, 2), Token("a"))
    crashing.direct.command(f"ALTER TABLE d.{table} MATERIALIZE INDEX i", settings={"mutations_sync": 1})
    crashing.crash(crashing.lose_part(table))
    crashing.inserter(first.begin).insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]


def test_a_search_that_does_not_find_what_was_just_inserted_stops_at_once(
    crashing: CrashingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that finds nothing stands for a defect of the search, of which none is known."""
    table = crashing.table("id Int64, p Int64", "MergeTree ORDER BY id")
    monkeypatch.setattr(interrupted, "missing_rows", lambda _client, _layout, rows: list(range(rows.num_rows)))
    crashing.crash_in_insert(lambda: None)
    with pytest.raises(InsertRefused, match=r"rows that were inserted just now are not found by their values"):
        crashing.inserter().insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (1,), (2,), (2,)]


def test_rows_are_not_sent_to_a_table_that_was_exchanged_for_a_copy(crashing: CrashingServer) -> None:
    """As after a full refresh by dbt; the copy has the rows, and no tokens."""
    table, copy = crashing.table(*PLAIN), crashing.table(*PLAIN)
    first = crashing.inserter()
    first.insert("d", table, block(1, 2), Token("a"))
    crashing.direct.command(f"INSERT INTO d.{copy} SELECT * FROM d.{table}")
    crashing.direct.command(f"EXCHANGE TABLES d.{table} AND d.{copy}")
    crashing.inserter(first.begin).insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]
    # Rows that the copy does not have are inserted.
    crashing.inserter(first.begin).insert("d", table, block(3), Token("b"))
    assert crashing.rows(table, "id") == [(1,), (2,), (3,)]


def test_a_lost_answer_of_a_table_without_its_window_stops_the_batch(crashing: CrashingServer) -> None:
    table, other = crashing.table(*PLAIN), crashing.table(*PLAIN)
    crashing.direct.command(f"ALTER TABLE d.{other} RESET SETTING non_replicated_deduplication_window")
    first = crashing.inserter()
    crashing.direct.command(f"EXCHANGE TABLES d.{table} AND d.{other}")
    rule = crashing.proxy.fail(Rule(lambda exchange: (exchange.forward(), exchange.hang_up())[0], times=1))
    with pytest.raises(InsertRefused, match=rf"d\.{table} was replaced .* keeps no insert tokens now; start"):
        first.insert("d", table, block(1, 2), Token("a"))
    assert rule.hits == 1
    # The next start restores the window.
    crashing.direct.command(f"ALTER TABLE d.{table} MODIFY SETTING non_replicated_deduplication_window = 1000")
    crashing.inserter(first.begin).insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]


def test_a_window_that_was_off_for_a_while_does_not_count_as_one_that_knows_the_tokens(
    crashing: CrashingServer,
) -> None:
    table = crashing.table(*PLAIN)
    first = crashing.inserter()
    first.insert("d", table, block(1, 2), Token("a"))
    # The time of an alteration has whole seconds.
    wait_until(lambda: time.time() > (first.begin.at_ms or 0) / 1000 + 1, "the next second")
    crashing.direct.command(f"ALTER TABLE d.{table} RESET SETTING non_replicated_deduplication_window")
    crashing.direct.command(f"ALTER TABLE d.{table} MODIFY SETTING non_replicated_deduplication_window = 1000")
    crashing.inserter(first.begin).insert("d", table, block(1, 2), Token("a"))
    assert crashing.rows(table, "id") == [(1,), (2,)]


def test_of_an_engine_that_replaces_rows_one_row_tells_that_the_block_was_there(crashing: CrashingServer) -> None:
    table = crashing.table("id Int64, p Int64", "ReplacingMergeTree ORDER BY id")
    inserter = crashing.inserter()
    inserter.insert("d", table, block(1, 2, partition=1), Token("a"))
    crashing.direct.command(f"INSERT INTO d.{table} VALUES (1, 9)")
    crashing.direct.command(f"OPTIMIZE TABLE d.{table} FINAL")
    crashing.crash(lambda: None)
    crashing.inserter(inserter.begin).insert("d", table, block(1, 2, partition=1), Token("a"))
    assert crashing.rows(table) == [(1, 9), (2, 1)]


def test_of_an_engine_that_sums_rows_the_token_decides_and_it_is_said(crashing: CrashingServer) -> None:
    table = crashing.table("id Int64, p Int64", "SummingMergeTree ORDER BY id")
    inserter = crashing.inserter()
    inserter.insert("d", table, block(1, 1, partition=5), Token("a"))
    crashing.crash(lambda: None)
    crashing.inserter(inserter.begin).insert("d", table, block(1, 1, partition=5), Token("a"))
    assert crashing.rows(table, "sum(p)") == [(10,)]
    assert any("rows of this SummingMergeTree table cannot be searched for" in text for text in crashing.messages)


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


def as_row_binary_of(rows: ArrowBlock) -> RowBinaryBlock:
    """Return rows with the columns id and p as a pipeline sends them."""
    values = [struct.pack("<qq", *row) for row in zip(*(c.to_pylist() for c in rows.table.columns), strict=True)]
    return RowBinaryBlock((("id", "Int64"), ("p", "Int64")), pa.chunked_array([pa.array(values, pa.binary())]))


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
