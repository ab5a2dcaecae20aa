"""Rows of a block as JSON, for people to read: ClickHouse itself formats them.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.inserts.block import RowBinaryBlock
from glassflow_dagster.clickhouse.inserts.external_block import external_table, read_settings

_BLOCK = "glassflow_block"


def read_as_json(client: Client, block: RowBinaryBlock) -> list[bytes]:
    """Return each row as a JSON object by the names of its columns; raises the client's own errors.

    Integers of 64 bits are numbers, as in the records.
    """
    answer = client.raw_query(
        f"SELECT * FROM {_BLOCK} FORMAT JSONEachRow",
        settings=read_settings(client) | {"output_format_json_quote_64bit_integers": 0},
        external_data=external_table(_BLOCK, block.format, block.body(), dict(block.columns)),
    )
    return answer.splitlines()
