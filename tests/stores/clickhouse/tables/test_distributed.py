"""Requirements for a Distributed table. The embedded engine has no cluster, so a fake client answers the queries."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from glassflow_dagster.definition.model.types import ColumnType
from glassflow_dagster.stores.clickhouse.errors import InsertRefused, RowsRefused, TableProblem
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import insert_settings
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.table import Column, Table
from glassflow_dagster.stores.clickhouse.tables.distributed import (
    Distributed,
    cluster_token_window_statement,
    local_tables_query,
    parse_distributed,
    require_more_tokens_on_shards,
    require_repeatable,
)
from glassflow_dagster.stream.delivery.block_writer import WholeBlockWriter
from glassflow_dagster.stream.delivery.token_room import TokenRoom

PLAIN = "MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 8192"
REPLICATED = (
    "ReplicatedMergeTree('/t', 'r') ORDER BY id SETTINGS replicated_deduplication_window = 10000, "
    "replicated_deduplication_window_seconds = 604800"
)


@dataclass
class Cluster:
    """A fake client that answers like a server of the cluster, since no cluster can run here."""

    shards: list[int] = field(default_factory=lambda: [1, 1])
    local: list[tuple[Any, ...]] = field(
        default_factory=lambda: [("h1", "MergeTree", PLAIN, 0), ("h2", "MergeTree", PLAIN, 0)]
    )
    uri: str = "http://h1:8123"

    def query(self, query: str, parameters: dict[str, Any] | None = None) -> Any:
        return SimpleNamespace(result_rows=self._answer(query, parameters or {}))

    def _answer(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        if "system.clusters" in query:
            assert parameters == {"cluster": "c"}
            return list(enumerate(self.shards, 1))
        if "clusterAllReplicas" in query:
            return list(self.local)
        if query.startswith("SELECT engine_full"):
            assert parameters == {"database": "d", "name": "t"}
            return [("Distributed('c', 'local', 'rows')",)]
        assert "MaterializedView" in query or "dependencies_table" in query
        return []


def target(key: str) -> Table:
    """Return the target: a Distributed table with a sharding key."""
    columns = {name: Column(ColumnType("String"), "", "String") for name in ("id", "now", "seen")}
    return Table("db", "d", "Distributed", f"Distributed('c', 'db', 'local', {key})", columns, rows=0, ttl=False)


def problems(cluster: Cluster, key: str = "cityHash64(id)") -> Iterator[str]:
    try:
        require_repeatable(cluster, target(key), {"id", "now"}, "sink.table")  # type: ignore[arg-type]
    except TableProblem as problem:
        yield from str(problem).splitlines()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Distributed('c', 'db', 't')", Distributed("c", "db", "t", "")),
        ("Distributed('c', 'a\\'b', 't', cityHash64(x, ','), 'p')", Distributed("c", "a'b", "t", "cityHash64(x, ',')")),
        ("Distributed(`c-1`, 'db', 't', (a + b) % 3) SETTINGS x = 1", Distributed("c-1", "db", "t", "(a + b) % 3")),
    ],
)
def test_a_description_is_read(text: str, found: Distributed) -> None:
    assert parse_distributed(text) == found


def test_statements_name_the_cluster_and_the_shards_own_table() -> None:
    distributed = Distributed("my 'c", "db", "lo`cal", "")
    assert local_tables_query(distributed) == (
        "SELECT hostName(), engine, engine_full, length(dependencies_table), partition_key "
        "FROM clusterAllReplicas('my \\'c', system.tables) WHERE database = 'db' AND name = 'lo`cal' "
        "SETTINGS skip_unavailable_shards = 0"
    )
    assert cluster_token_window_statement(distributed, "MergeTree") == (
        "ALTER TABLE `db`.`lo\\`cal` ON CLUSTER `my 'c` MODIFY SETTING non_replicated_deduplication_window = 10000"
    )


@pytest.mark.parametrize("engine", [("MergeTree", PLAIN), ("ReplicatedMergeTree", REPLICATED)])
@pytest.mark.parametrize("key", ["cityHash64(id)", "id", "sipHash64(id, now)"])
def test_a_table_whose_shards_all_remember_tokens_is_taken(engine: tuple[str, str], key: str) -> None:
    assert list(problems(Cluster(local=[("h1", *engine, 0), ("h2", *engine, 0)]), key)) == []


@pytest.mark.parametrize("key", ["rand()", "cityHash64(id, now64(3))", "generateUUIDv4()", "hostName()", "Rand ( )"])
def test_a_row_must_go_to_the_same_shard_each_time(key: str) -> None:
    assert next(problems(Cluster(), key)).startswith(f"sink.table: db.d has the sharding key {key}, which may send")
    # With one shard every row goes to the same place.
    assert list(problems(Cluster(shards=[2]), key)) == []


def test_a_sharding_key_of_a_column_with_a_default_is_refused() -> None:
    assert "does not fill column 'seen'" in next(problems(Cluster(), "cityHash64(seen)"))


@pytest.mark.parametrize("key", ["toYYYYMM(seen)", "toDate(now())"])
def test_every_shards_table_must_be_partitioned_by_what_the_pipeline_fills(key: str) -> None:
    cluster = Cluster(local=[("h1", "MergeTree", PLAIN, 0, "toYYYYMM(id)"), ("h2", "MergeTree", PLAIN, 0, key)])
    found = list(problems(cluster))
    assert len(found) == 1
    assert f"partitioned by {key} on h2, and a repeated row may fall into another partition" in found[0]


def test_every_shards_table_must_remember_tokens_and_have_no_views() -> None:
    short = REPLICATED.replace("604800", "3600")
    local = [
        ("h1", "MergeTree", "MergeTree ORDER BY id", 0),
        ("h2", "ReplicatedMergeTree", short, 0),
        ("h3", "Log", "Log", 0),
        ("h4", "MergeTree", PLAIN, 1),
    ]
    found = list(problems(Cluster(shards=[2, 3], local=local)))
    assert len(found) == 5
    assert "which exists on 4 of the 5 servers of cluster c" in found[0]
    assert "h1; run ALTER TABLE `db`.`local` ON CLUSTER `c` MODIFY SETTING non_replicated_ded" in found[1]
    assert "h2; run ALTER TABLE `db`.`local` ON CLUSTER `c` MODIFY SETTING replicated_ded" in found[2]
    assert "which is a Log table on h3" in found[3]
    assert "has materialized views on h4" in found[4]


@pytest.mark.servers
def test_an_insert_waits_for_the_shards(client: Client) -> None:
    settings = insert_settings(client, Token("t"), 1)
    assert settings["distributed_foreground_insert"] == 1
    assert settings["insert_distributed_one_random_shard"] == 0


class Refusing:
    """A fake inserter whose server rejects a row."""

    def insert(self, *_: Any) -> None:
        raise RowsRefused("db.d", "a constraint", none_inserted=True) from DatabaseError("code 469")


def test_a_block_is_not_taken_apart() -> None:
    writer = WholeBlockWriter(Refusing(), "db", "d")  # type: ignore[arg-type]
    with pytest.raises(InsertRefused, match=r"db.d refuses values: a constraint; a block .* is not split"):
        writer.insert(ArrowBlock(pa.table({"id": [1]})), Token("token"))


def test_a_batch_of_more_blocks_than_a_shard_keeps_tokens_ends_with_what_to_do() -> None:
    kept = PLAIN.replace("10000", "20000")
    cluster = Cluster(local=[("h1", "MergeTree", kept, 0), ("h2", "MergeTree", PLAIN, 0)])

    require_more_tokens_on_shards(cast("Client", cluster), "d", "t", 20_000)
    with pytest.raises(TableProblem, match="keeps 10000 insert tokens, and a batch needs more") as error:
        require_more_tokens_on_shards(cast("Client", cluster), "d", "t", 40_000)

    assert str(error.value).startswith("local.rows on h2 ")
    assert (
        "run ALTER TABLE `local`.`rows` ON CLUSTER `c` MODIFY SETTING non_replicated_deduplication_window = 320000"
        in str(error.value)
    )


def test_a_block_without_room_for_its_token_is_not_sent() -> None:
    def keep(_: int) -> None:
        raise TableProblem("keeps too few")

    room = TokenRoom(tasks=1, tokens_per_insert=10_000, keep=keep)
    writer = WholeBlockWriter(cast("Any", None), "d", "t", room)
    with pytest.raises(TableProblem, match="keeps too few"):
        writer.insert(ArrowBlock(pa.table({"id": [1]})), Token("b"))
