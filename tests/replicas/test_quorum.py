"""A quorum that fails while another replica waits for it: no row of the block may be lost or doubled."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from glassflow_dagster.stores.bookkeeping.tables import TABLES, ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.tables.quorum import require_replicas
from tests.replicas.conftest import with_replicas
from tests.replicas.fault_world import running_replicas
from tests.support.waiting import wait_until

ROWS = pa.table({"n": pa.array(range(100), pa.int64())})
# What a user has whose inserts wait for a majority; other blocks are written meanwhile (insert_quorum_parallel = 1).
QUORUM = {"insert_quorum": "auto"}
# A session of ZooKeeper ends after some seconds, then the other replica gives the quorum up.
INSERT_SECONDS = 90

pytestmark = [pytest.mark.servers, pytest.mark.long]


@with_replicas
def test_one_replica_is_refused_before_inserts_wait_for_another(tmp_path: Path) -> None:
    with running_replicas(tmp_path / "servers") as servers:
        clients = [servers.client_of(replica) for replica in servers.replicas]
        ids = [("d", table.name) for table in TABLES]
        for client in clients:
            ensure_bookkeeping(client, "d", "ReplicatedMergeTree")
            if client is clients[0]:
                with pytest.raises(TableProblem, match="1 replica, and inserts wait for 2") as found:
                    require_replicas(client, ids, [])
                assert all(".".join(table) in str(found.value) for table in ids)
        for client in clients:
            require_replicas(client, ids, [])
            client.close()


@with_replicas
def test_rows_of_a_replica_that_died_before_the_quorum_are_written_again(tmp_path: Path) -> None:
    with running_replicas(tmp_path / "servers") as servers:
        first = servers.replicas[0]
        clients = [servers.client_of(replica) for replica in servers.replicas]
        for client in clients:
            client.command("CREATE DATABASE d")
            client.command("CREATE TABLE d.t (n Int64) ENGINE = ReplicatedMergeTree ORDER BY n")
        clients[1].command("SYSTEM STOP FETCHES d.t")
        # Requests go to the first replica until it is down.
        messages: list[str] = []
        inserter = Inserter(servers.client(), INSERT_SECONDS, messages.append)
        with ThreadPoolExecutor(1) as pool:
            inserted = pool.submit(inserter.insert, "d", "t", ArrowBlock(ROWS), Token("a block"), QUORUM)
            parts = "SELECT count() FROM system.parts WHERE database = 'd' AND table = 't' AND active"
            wait_until(lambda: clients[0].query(parts).result_rows[0][0] == 1, "the block is on the first replica")
            first.kill()
            clients[1].command("SYSTEM START FETCHES d.t")
            # The quorum has failed: the insert is over, or finds that no other is possible with one replica.
            wait_until(
                lambda: inserted.done() or any("TOO_FEW_LIVE_REPLICAS" in message for message in messages),
                "the other replica gives the quorum up",
            )
            first.start()
            servers.wait_for_clickhouse()
            inserted.result(INSERT_SECONDS)
        for client in clients:
            client.command("SYSTEM SYNC REPLICA d.t")
            assert client.query("SELECT count(), uniqExact(n) FROM d.t").result_rows == [(100, 100)]
