"""A user's column may have any name, and a producer may choose it: no query of ours may mistake it for its own."""

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.checks.duplicates import Scope, Search, duplicates_query
from glassflow_dagster.checks.exact.table_rows import TableReader, texts_query
from glassflow_dagster.checks.keys import count_keys, key_expression
from glassflow_dagster.checks.row_time import time_column
from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.stores.clickhouse.inserts.already_written import missing_rows, written_rows
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock, RowBinaryBlock
from glassflow_dagster.stores.clickhouse.inserts.external_block import BLOCK
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.rows_as_json import read_as_json
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.layout import read_layout
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.clickhouse.table import require_table

pytestmark = pytest.mark.servers

# Aliases, and the names of subqueries. Those of `own_alias` are drawn anew by each process: they end in hexadecimals.
_ALIAS = re.compile(r"\bAS `?(\w+)`?|\b(\w+) AS \(")
_DRAWN = re.compile(r"_[0-9a-f]{32}$")

# Names that had another meaning in a query once, or that a query might give one.
NAMES = {
    "part", "digest", "rows", "glassflow_row", BLOCK, "n", "key_hash", "row_hash", "came", "key", "filled", "wanted",
    "found", "count", "_part", "_row", "tuple", "r", "b", "*", "a`b", "a\\b", "a.b", "a'b", "select",
}  # fmt: skip
TIME = "at"


class Recorder:
    """A client that notes the queries that it sends."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.queries: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def query(self, query: str, *args: Any, **kwargs: Any) -> Any:
        self.queries.append(query)
        return self._client.query(query, *args, **kwargs)

    def raw_query(self, query: str, *args: Any, **kwargs: Any) -> Any:
        self.queries.append(query)
        return self._client.raw_query(query, *args, **kwargs)


def rows_of(names: list[str], *values: str) -> ArrowBlock:
    """Return rows with a value of its own in each of the columns, and one time for all."""
    texts = {name: pa.array([f"{value}/{index}" for value in values]) for index, name in enumerate(names)}
    return ArrowBlock(pa.table(texts | {TIME: pa.array([1_700_000_000] * len(values), pa.uint32())}))


def results(client: Any, connection: ClickHouseConnection, table: str, names: list[str]) -> list[object]:
    """Create and fill a table with these columns, then return the results of all queries over it, without names."""
    database, name = connection.database, full_name(connection.database, table)
    columns = ", ".join(f"{quote_name(column)} String" for column in names)
    client.command(
        f"CREATE TABLE {name} ({columns}, {quote_name(TIME)} DateTime) ENGINE = MergeTree "
        f"PARTITION BY length({quote_name(names[0])}) ORDER BY ({', '.join(map(quote_name, names))}) "
        "SETTINGS non_replicated_deduplication_window = 100"
    )
    sent, twice = rows_of(names, "x", "y", "y"), rows_of(names, "x", "x", "z")
    Inserter(client, 10, print).insert(database, table, sent, Token("a"))
    layout, described = read_layout(client, database, table), require_table(client, database, table)
    # Without Spark, whose half of these expressions reads no table.
    key_text = f"toString({key_expression(tuple(names))})"
    key_hash = f"lower(hex(MD5({key_text})))"
    hashes = [row[0] for row in fetch(client, TableReader(connection, database, table, key_hash, key_hash, 1).query(0))]
    search = Search(
        described, key_expression(tuple(names)), 1000, time_column(described, TIME, is_clock=False),
        LEDGER.full_name(database), "p", waits=True, scope=Scope(10**9),
    )  # fmt: skip
    binary = RowBinaryBlock(
        tuple((each, "String") for each in names), pa.chunked_array([pa.array([b"\x011" * len(names)], pa.binary())])
    )
    return [
        missing_rows(client, layout, sent),
        missing_rows(client, layout, twice),
        written_rows(client, layout, twice),
        [list(json.loads(row).values()) for row in read_as_json(client, binary)],
        count_keys(client, name, search.key),
        [fetch(client, duplicates_query(search, final=False))[0][:2]],
        len(hashes),
        len(fetch(client, texts_query(database, table, key_hash, key_text), {"keys": hashes})),
    ]


def test_every_query_over_a_user_s_table_takes_columns_of_any_name(
    client: Client, connection: ClickHouseConnection
) -> None:
    execute(client, f"CREATE DATABASE {connection.database}")
    ensure_bookkeeping(client, connection.database)
    recorder = Recorder(client)
    expected = results(recorder, connection, "plain", [f"c{index}" for index in range(9)])
    assert expected == [[], [0, 1, 2], [0], [["1"] * 9], (3, 2), [(1, 1)], 3, 2]
    found = {name for query in recorder.queries for match in _ALIAS.findall(query) for name in match if name}
    names = sorted(NAMES | {name for name in found if not _DRAWN.search(name)})
    assert len(names) > len(NAMES)
    # The values of the JSON rows are as many as the columns.
    expected[3] = [["1"] * len(names)]
    assert results(recorder, connection, "hostile", names) == expected
