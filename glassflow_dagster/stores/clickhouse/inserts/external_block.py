"""A block that is sent along with a query, which reads it as a table.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Mapping
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.external import ExternalData

from glassflow_dagster.stores.clickhouse.identifiers import own_alias, quote_name
from glassflow_dagster.stores.clickhouse.inserts.block import Block

BLOCK = "glassflow_block"
# A column beside the block's own, which may have any name.
ROW = own_alias("glassflow_row")

_SETTINGS = {
    # The block's columns have the table's types, unusual ones included.
    "allow_suspicious_low_cardinality_types": 1,
    "input_format_null_as_default": 0,
}

# Settings of newer servers, which older ones would reject as unknown.
_SETTINGS_WHERE_KNOWN = {
    # A JSON value in RowBinary is its text, as in an insert.
    "input_format_binary_read_json_as_string": 1
}


def external_table(block: Block, types: Mapping[str, str]) -> ExternalData:
    """Return a block as the external table `BLOCK`, with its rows' numbers, from 0, in the column `ROW`.

    types: column -> ClickHouse type, of the block's columns in their order.
    """
    structure = ", ".join(f"{quote_name(column)} {kind}" for column, kind in {**types, ROW: "UInt32"}.items())
    return ExternalData(file_name=BLOCK, data=block.numbered_body(ROW), fmt=block.format, structure=structure)


def read_settings(client: Client) -> dict[str, Any]:
    """Return the settings with which the server reads a block in a query as it does in an insert."""
    known = {name: value for name, value in _SETTINGS_WHERE_KNOWN.items() if name in client.server_settings}
    return {**_SETTINGS, **known}
