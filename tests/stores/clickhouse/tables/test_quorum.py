"""Whether inserts wait for replicas, and whether there are so many; on real ones in tests/replicas."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.clickhouse.tables import quorum as module
from glassflow_dagster.stores.clickhouse.tables.quorum import require_replicas, rows_on_one_replica


def table(engine: str) -> Table:
    return Table(
        database="d", name=engine.lower(), engine=engine, engine_full=engine, columns={}, rows=0, ttl=False,
        sorting_key="", partition_key="",
    )  # fmt: skip


BOOKKEEPING = [("d", "ledger"), ("d", "splits")]


class Replicas:
    """A server that knows the number of replicas of each table, and keeps the queries."""

    def __init__(self, quorum: str, **replicas: int) -> None:
        self.server_settings = {"insert_quorum": SimpleNamespace(value=quorum)}
        self.queries: list[str] = []
        self._replicas = replicas

    def query(self, sql: str, parameters: Any = None) -> Any:
        self.queries.append(sql)
        least = int(sql.partition("replicas < ")[2].split()[0]) if "total_replicas" in sql else 0
        rows = [
            ("d", name, number)
            for name, number in self._replicas.items()
            if f"('d', '{name}')" in sql and number < least
        ]
        return SimpleNamespace(result_rows=rows)


@pytest.mark.parametrize(
    ("quorum", "replicas", "problems"),
    [
        ("0", {"ledger": 2, "t": 1}, []),
        ("auto", {"ledger": 2, "t": 2}, []),
        ("auto", {"ledger": 1, "t": 2}, ["d.ledger: 1 replica, and inserts wait for 2 (insert_quorum = auto)"]),
        ("0", {"ledger": 1, "splits": 1, "t": 1}, ["d.ledger, d.splits: 1 replica,"]),
        ("auto", {"ledger": 1, "t": 1}, ["d.ledger: ", "d.t: 1 replica"]),
        ("3", {"ledger": 2, "t": 2}, ["d.t: 2 replicas, and inserts wait for 3"]),
    ],
)
def test_a_table_without_the_replicas_that_inserts_wait_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, quorum: str, replicas: dict[str, int], problems: list[str]
) -> None:
    monkeypatch.setattr(module, "find_written_tables", lambda *_: SimpleNamespace(table_ids=[("d", "t")]))
    server = cast("Client", Replicas(quorum, **replicas))
    tables = [table("ReplicatedMergeTree")]
    if not problems:
        require_replicas(server, BOOKKEEPING, tables)
        return
    with pytest.raises(TableProblem) as found:
        require_replicas(server, BOOKKEEPING, tables)
    lines = str(found.value).splitlines()
    assert len(lines) == len(problems)
    assert all(line.startswith(problem) for line, problem in zip(lines, problems, strict=True))


def test_the_shards_of_a_distributed_table_are_asked() -> None:
    server = Replicas("auto", local=1)
    sharded = replace(table("Distributed"), engine_full="Distributed('prod', 'd', 'local', rand())")
    with pytest.raises(TableProblem, match=r"d\.local: 1 replica"):
        require_replicas(cast("Client", server), BOOKKEEPING, [sharded])
    assert "FROM clusterAllReplicas('prod', system.replicas)" in server.queries[-1]


def client(quorum: str | None) -> Any:
    """Return what a client knows of its server; None: a server without the setting."""
    return SimpleNamespace(server_settings={} if quorum is None else {"insert_quorum": SimpleNamespace(value=quorum)})


@pytest.mark.parametrize("quorum", ["0", "1"])
def test_a_replicated_table_without_a_quorum_is_named(quorum: str) -> None:
    tables = [table("ReplicatedMergeTree"), table("MergeTree"), table("ReplicatedReplacingMergeTree")]
    warning = rows_on_one_replica(client(quorum), tables)
    assert "into d.replicatedmergetree, d.replicatedreplacingmergetree wait for one replica only" in warning
    assert f"(insert_quorum is {quorum})" in warning
    assert "insert_quorum = 'auto'" in warning


@pytest.mark.parametrize(
    ("quorum", "engine"),
    [("auto", "ReplicatedMergeTree"), ("2", "ReplicatedMergeTree"), ("0", "MergeTree"), ("0", "SharedMergeTree"),
     (None, "ReplicatedMergeTree")],
)  # fmt: skip
def test_otherwise_there_is_no_warning(quorum: str | None, engine: str) -> None:
    assert not rows_on_one_replica(client(quorum), [table(engine)])
