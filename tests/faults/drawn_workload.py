"""The deduplicated events in a table whose DDL is drawn: names, keys, columns of the server, TTLs, projections."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.identifiers import quote_name
from tests.faults.dedup_workload import WINDOW, DedupWorkload, sink_of
from tests.faults.records import Expected, Position, Record
from tests.support.definition import mapping

# Names that a query over the table might use itself.
_NAMES = ("part", "digest", "rows", "glassflow_row", "n", "key", "came", "count", "a`b", "filled", "Ünïcode", "x.y")
# Columns that the server fills, one of them in the sorting key.
_FILLED = (
    "{} DateTime64(3) DEFAULT now64(3)",
    "{} UInt64 DEFAULT rand64()",
    "{} Date MATERIALIZED today()",
    "{} UInt64 MATERIALIZED cityHash64({id})",
)
_CODECS = ("", "CODEC(ZSTD(3))", "CODEC(LZ4HC(9))")


class DrawnTableWorkload(DedupWorkload):
    """Events for a table of which everything is drawn that the pipeline leaves to the user."""

    def __init__(self, name: str, seed: int = 0) -> None:
        super().__init__(name)
        draw = random.Random(f"table {seed}")
        self._id, self._n, self._text, self._faded, self._server = draw.sample(_NAMES, 5)
        self.columns = tuple(map(quote_name, (self._id, self._n, self._text)))
        self._ddl = self._draw_ddl(draw)
        # Rows that somebody has deleted.
        self.deleted: Counter[tuple[Any, ...]] = Counter()

    def _draw_ddl(self, draw: random.Random) -> str:
        """Return a table's columns, its engine and its keys."""
        id_, n, text, faded, server = map(quote_name, (self._id, self._n, self._text, self._faded, self._server))
        filled = draw.choice(_FILLED).format(server, id=id_)
        columns = [
            f"{id_} String {draw.choice(_CODECS)}",
            f"{n} Int32 {draw.choice(_CODECS)}",
            f"{text} String {draw.choice(_CODECS)}",
            "`of partition` UInt32", "position UInt64",
            # Its values are gone before a batch that was interrupted is repeated.
            f"written_at DateTime DEFAULT now(), {faded} String TTL written_at + INTERVAL 1 SECOND",
            filled,
            f"CONSTRAINT positive CHECK {n} >= 0",
            *draw.choice([[], [f"PROJECTION by_n (SELECT {id_}, {n} ORDER BY {n})"], [f"INDEX by_n {n} TYPE minmax"]]),
        ]  # fmt: skip
        order = draw.choice([f"({server}, {id_})", f"({id_}, {server})", f"({n}, written_at, {id_})", "tuple()"])
        partition = draw.choice(["", f"PARTITION BY {n} % 3"])
        return f"({', '.join(columns)}) ENGINE = MergeTree {partition} ORDER BY {order}"

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        made = super().definition(brokers, clickhouse_port)
        made["sink"] = sink_of(self.name, clickhouse_port, self.block_rows, {})
        made["sink"]["mapping"] = [
            mapping("id", "String", self._id), mapping("n", "Int32", self._n), mapping("text", "String", self._text),
            mapping("_partition", "UInt32", "of partition"), mapping("_offset", "UInt64", "position"),
            mapping("text", "String", self._faded),
        ]  # fmt: skip
        return made

    def tables(self) -> Sequence[str]:
        return [f"CREATE DATABASE {self.name}", f"CREATE TABLE {self.name}.events {self._ddl} {WINDOW}"]

    def expected(self, records: Sequence[Record], times: Mapping[Position, int]) -> Expected:
        found = super().expected(records, times)
        found.rows.subtract(self.deleted)
        return found

    def exchange(self, client: Client, *, with_window: bool) -> None:
        """Let a table with the same rows take the place of the pipeline's, as a full refresh by dbt does."""
        table, copy = f"{self.name}.events", f"{self.name}.refreshed"
        client.command(f"CREATE TABLE {copy} {self._ddl} {WINDOW * with_window}")
        query = (
            "SELECT name FROM system.columns WHERE database = {database:String} AND table = 'events' "
            "AND default_kind != 'MATERIALIZED'"
        )
        names = client.query(query, parameters={"database": self.name}).result_rows
        columns = ", ".join(quote_name(name) for (name,) in names)
        client.command(f"INSERT INTO {copy} ({columns}) SELECT {columns} FROM {table}")
        client.command(f"EXCHANGE TABLES {table} AND {copy}")
        client.command(f"DROP TABLE {copy} SYNC")

    def delete_newest_row(self, client: Client) -> None:
        """Delete one row of the newest part."""
        table = f"{self.name}.events"
        query = (
            f"SELECT {', '.join(self.columns)} FROM {table} WHERE _part = (SELECT name FROM system.parts "
            f"WHERE database = '{self.name}' AND table = 'events' AND active ORDER BY max_block_number DESC LIMIT 1) "
            "ORDER BY ALL LIMIT 1"
        )
        row = tuple(client.query(query).result_rows[0])
        client.command(
            f"ALTER TABLE {table} DELETE WHERE {quote_name(self._id)} = {{id:String}} AND {quote_name(self._n)} = "
            "{n:Int32}",
            parameters={"id": row[0], "n": row[1]}, settings={"mutations_sync": 1},
        )  # fmt: skip
        self.deleted[row] += 1
