"""A materialized view that fails is named, and the remedy in the error works, on a real ClickHouse."""

import re

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.clickhouse.errors import ErrorKind, InsertRefused, classify, failing_view, view_remedy
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token

WINDOW = "SETTINGS non_replicated_deduplication_window = 100"
BLOCK = ArrowBlock(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "d": ["1.5", "aa", "2"]}))


@pytest.mark.servers
@pytest.mark.parametrize("view", ["v", "`it``s a (view)`"])
def test_a_view_that_throws_is_named_and_the_batch_is_complete_once_its_query_is_changed(
    client: Client, connection: ClickHouseConnection, view: str
) -> None:
    database = connection.database
    client.command(f"CREATE DATABASE {database}")
    client.command(f"CREATE TABLE {database}.t (id Int32, d String) ENGINE = MergeTree ORDER BY id {WINDOW}")
    client.command(f"CREATE TABLE {database}.amounts (s Float64) ENGINE = MergeTree ORDER BY s {WINDOW}")
    name = f"{database}.{view}"
    client.command(
        f"CREATE MATERIALIZED VIEW {name} TO {database}.amounts AS SELECT CAST(d AS Float64) AS s FROM {database}.t"
    )
    inserter = Inserter(client, 10, print)
    with pytest.raises(InsertRefused) as error:
        inserter.insert(database, "t", BLOCK, Token("a"))
    text = str(error.value)
    assert text.startswith(f"view {database}.")
    assert f"behind {database}.t fails: Cannot read floating point value here: aa" in text
    assert "the user's rights" not in text
    advised = re.search(r"ALTER TABLE .+ MODIFY QUERY SELECT", text)
    assert advised, text
    client.command(f"{advised[0]} toFloat64OrZero(d) AS s FROM {database}.t")
    inserter.note_restart()  # as a driver that repeats the batch
    inserter.insert(database, "t", BLOCK, Token("a"))
    assert client.query(f"SELECT id FROM {database}.t ORDER BY id").result_rows == [(1,), (2,), (3,)]
    assert client.query(f"SELECT s FROM {database}.amounts ORDER BY s").result_rows == [(0.0,), (1.5,), (2.0,)]


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("no: while pushing to view default.v (4f0c-1): while pushing to view default.outer (9-2)", "default.v"),
        ("no: while pushing to view `a.b`.`v \\` (x)`. (CANNOT_PARSE_NUMBER)", "`a.b`.`v \\` (x)`"),
        ("no table t", None),
    ],
)
def test_the_view_of_an_error_is_the_one_that_threw(text: str, view: str | None) -> None:
    assert failing_view(DatabaseError(text)) == view


def test_a_view_without_rights_needs_these_and_no_other_query() -> None:
    error = DatabaseError("Code: 497. DB::Exception: Not enough privileges: while pushing to view d.v")
    assert classify(error) is ErrorKind.TABLE
    assert view_remedy("d.v", error).startswith("grant what is missing to the view's definer")
