"""The warning that a replica's rows can be lost with its disk; on real replicas in tests/replicas."""

from types import SimpleNamespace
from typing import Any

import pytest

from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.clickhouse.target.quorum import rows_on_one_replica


def table(engine: str) -> Table:
    return Table(
        database="d", name=engine.lower(), engine=engine, engine_full=engine, columns={}, rows=0, ttl=False,
        sorting_key="", partition_key="",
    )  # fmt: skip


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
