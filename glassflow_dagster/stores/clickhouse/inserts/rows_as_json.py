"""Rows of a block as JSON, for people to read: ClickHouse itself formats them.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Callable

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.types import Argument, ColumnType, Named, parse_column_type
from glassflow_dagster.stores.clickhouse.inserts.block import RowBinaryBlock
from glassflow_dagster.stores.clickhouse.inserts.external_block import BLOCK, ROW, external_table, read_settings


def read_as_json(client: Client, block: RowBinaryBlock) -> list[bytes]:
    """Return each row as a JSON object by the names of its columns; raises the client's own errors.

    Integers of 64 bits are numbers, as in the records. A value of the type JSON is its text: the server may have
    refused just that.
    """
    as_text = RowBinaryBlock(tuple((name, _with_texts(kind)) for name, kind in block.columns), block.rows)
    answer = client.raw_query(
        f"SELECT * EXCEPT ({ROW}) FROM {BLOCK} ORDER BY {ROW} FORMAT JSONEachRow",
        settings=read_settings(client) | {"output_format_json_quote_64bit_integers": 0},
        external_data=external_table(as_text, dict(as_text.columns)),
    )
    return answer.splitlines()


def _with_texts(kind: str) -> str:
    """Return a type with String in place of JSON, at any depth: in RowBinary both are the same bytes."""

    def replaced(column: ColumnType) -> ColumnType:
        if column.name == "JSON":
            return ColumnType("String")
        return ColumnType(column.name, tuple(_replaced_argument(a, replaced) for a in column.arguments))

    return str(replaced(parse_column_type(kind))) if "JSON" in kind else kind


def _replaced_argument(argument: Argument, replaced: Callable[[ColumnType], ColumnType]) -> Argument:
    if isinstance(argument, Named):
        return Named(argument.name, replaced(argument.type))
    return replaced(argument) if isinstance(argument, ColumnType) else argument
