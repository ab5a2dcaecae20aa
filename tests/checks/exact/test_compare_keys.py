"""Comparison of expected and actual rows, on Spark with rows made by the test."""

from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.canonical import comparable, hashed, joined, readable_key
from glassflow_dagster.checks.exact.compare_keys import Compared, actual_by_key, expected_by_key, find_differences
from glassflow_dagster.checks.exact.expected import without_refused
from glassflow_dagster.definition.model.types import parse_column_type
from glassflow_dagster.stores.bookkeeping.dead_letter_table import RefusedEvent
from glassflow_dagster.stores.clickhouse.table import Column, Table
from tests.stores.clickhouse.definitions import sms_status


def test_rows_of_batches_that_came_while_the_table_was_read_may_be_there_and_need_not(spark: SparkSession) -> None:
    expected = spark.createDataFrame(
        [
            # key, row_hash, batch, offset; the table was read when the ledger had batch 1.
            ("in time", "1", 1, 0), ("late, there", "1", 2, 1), ("late, not there", "1", 2, 2), ("twice", "1", 0, 3),
            ("twice", "2", 1, 4), ("refused", "1", 0, 5), ("lost", "1", 1, 6), ("swapped", "1", 1, 7),
        ],
        "key STRING, row_hash STRING, batch_id LONG, offset LONG",
    ).selectExpr("key AS key_hash", "'3:' || left(key, 3) AS key", "row_hash", "batch_id",
                 "1000 + batch_id AS batch_ms", "'t' AS topic", "0 AS partition", "offset",
                 "0 AS table_index")  # fmt: skip
    there = spark.createDataFrame(
        [("in time", "1"), ("late, there", "1"), ("twice", "2"), ("twice", "1"), ("swapped", "2")],
        "key_hash STRING, row_hash STRING",
    )
    refused = [
        RefusedEvent("t", 0, 5, -1, "", 1000),
        RefusedEvent("t", 0, 1, -1, "d.of another table", 1002),
        RefusedEvent("t", 0, 6, -1, "", 999),  # of a topic that was deleted since
    ]
    table = Table("d", "t", "MergeTree", "MergeTree", {}, rows=0, ttl=False)
    compared = Compared(sms_status(), table, 0, (), (), ())

    by_key = expected_by_key(without_refused(expected, refused, sms_status()), 1)
    found = find_differences(Mock(), compared, by_key, actual_by_key(there))

    assert (found.expected, found.rows) == (5, 5)
    assert (found.missing.examples, found.lost.keys, found.surplus.rows) == (("los",), 1, 0)
    assert found.changed.examples == ("swa",)


@pytest.mark.parametrize(
    ("kind", "is_compared"),
    [("LowCardinality(Nullable(String))", True), ("Float64", False), ("DateTime64(9)", False), ("Array(Int8)", False)],
)
def test_types_that_the_two_do_not_write_alike_are_not_compared(
    spark: SparkSession, kind: str, is_compared: bool
) -> None:
    assert spark is not None  # creating a column needs a session
    table = Table(
        "d", "t", "MergeTree", "MergeTree", {"a": Column(parse_column_type(kind), "", kind)}, rows=0, ttl=False
    )
    assert (comparable(table, "a", 0) is not None) is is_compared


def test_values_cannot_run_into_each_other(spark: SparkSession) -> None:
    kinds = {name: Column(parse_column_type("Nullable(String)"), "", "Nullable(String)") for name in ("a", "b")}
    table = Table("d", "t", "MergeTree", "MergeTree", kinds, rows=0, ttl=False)
    columns = [found for name in kinds if (found := comparable(table, name, 0))]
    pairs: list[tuple[Any, Any]] = [
        ("1", "2:"),
        ("12", ":"),
        (None, "-"),
        ("-", None),
        ("", None),
        (None, ""),
        ("é,", " x"),
    ]
    rows = spark.createDataFrame([((pair),) for pair in pairs], "row_0 STRUCT<a STRING, b STRING>")
    found = rows.select(joined(columns)[0].alias("text"), hashed(columns)[0].alias("hash")).collect()
    assert len({row["hash"] for row in found}) == len(pairs)
    assert [readable_key(row["text"]) for row in found[2:4]] == ["NULL, -", "-, NULL"]
    assert readable_key(found[-1]["text"]) == "é,,  x"
