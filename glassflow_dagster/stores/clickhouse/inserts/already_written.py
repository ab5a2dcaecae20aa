"""Search for rows of a block that a table has already, by their values.

Used after a restart of the server, when insert tokens are unreliable. ClickHouse inserts a block's rows of one
partition as one part, so all of them are in the table or none. Rows are compared by a hash of the columns that the
block fills; a column with the record's position in Kafka or with the batch time makes rows of different records
distinct: then any of a part's rows proves that it was inserted, even if others were deleted since. If all rows of a
partition equal rows of other records, it cannot be known whether they were inserted: they count as written.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.identifiers import full_name, names_in, own_alias, quote_name, quote_text
from glassflow_dagster.stores.clickhouse.inserts.block import Block
from glassflow_dagster.stores.clickhouse.inserts.external_block import BLOCK, ROW, external_table, read_settings
from glassflow_dagster.stores.clickhouse.layout import Layout
from glassflow_dagster.stores.clickhouse.sql_text import split_at_commas

# Types that may store one value in several forms.
_LOOSE = re.compile(r"\b(JSON|Dynamic|Variant)\b")

# The end of a sorting key's part that is in reverse order.
_DIRECTION = re.compile(r"\s+(?:ASC|DESC)$")

# Columns of the search's own, beside those of the table and the block.
_PARTITION, _DIGEST, _ROWS = own_alias("partition"), own_alias("digest"), own_alias("rows")

# Find rows with NULL in the sorting key as well.
_SETTINGS = {"transform_null_in": 1}


def missing_rows(client: Client, layout: Layout, block: Block) -> list[int]:
    """Return the row numbers of the block that are missing in the table: per partition all of its rows, or none.

    Raises the client's own errors.
    """
    by_partition: dict[str, list[tuple[int, bytes, int]]] = defaultdict(list)
    # count: the number of rows of the table with the hash `digest`.
    for row, partition, digest, count in _search(client, layout, block):
        by_partition[str(partition)].append((row, digest, count))
    any_row_proves = block.is_distinct or not layout.keeps_rows
    missing = [
        row
        for rows in by_partition.values()
        if not _is_part_written(rows, any_row_proves=any_row_proves)
        for row, _, _ in rows
    ]
    return sorted(missing)


def written_rows(client: Client, layout: Layout, block: Block) -> list[int]:
    """Return the row numbers of the block whose values are in the table; of equal rows as many as the table has.

    Empty for an engine whose merges change rows. Raises the client's own errors.
    """
    if layout.changes_rows:
        return []
    # Hash -> number of the table's rows with this hash that no row of the block has been matched with yet.
    unassigned: dict[bytes, int] = {}
    written = []
    for row, _, digest, count in _search(client, layout, block):
        if unassigned.setdefault(digest, count):
            unassigned[digest] -= 1
            written.append(row)
    return sorted(written)


def _is_part_written(rows: Sequence[tuple[int, bytes, int]], *, any_row_proves: bool) -> bool:
    """Return True when the table has the block's rows of one partition.

    rows: (row number, hash of its values, number of rows of the table with this hash).
    any_row_proves: one row that is found proves that the part was inserted. So it is where no other record makes an
        equal row; and where the server removes single rows of a part (merges by key, a TTL), so that no more can be
        asked for.
    """
    written = {digest: count for _, digest, count in rows}
    if any_row_proves:
        return any(written.values())
    wanted = Counter(digest for _, digest, _ in rows)
    return all(written[digest] >= count for digest, count in wanted.items())


def _search_query(layout: Layout, block: Block) -> str:
    """Return the SELECT of (row number, partition, hash, number of rows of the table with this hash) for a block.

    The block is sent along as the external table `glassflow_block`. The CTEs: `filled` is the block with the columns
    that the server fills, `wanted` has its rows' partitions and hashes, `found` the number of the table's rows by hash.
    """
    digest = _digest(layout, block)
    conditions = [*_key_condition(layout, block), f"{digest} IN (SELECT {_DIGEST} FROM wanted)"]
    return (
        f"WITH {_filled_block(layout, block)}, "
        f"wanted AS (SELECT {ROW}, {_partition(layout)} AS {_PARTITION}, {digest} AS {_DIGEST} FROM filled), "
        f"found AS (SELECT {digest} AS {_DIGEST}, count() AS {_ROWS} FROM {full_name(layout.database, layout.table)} "
        f"WHERE {' AND '.join(conditions)} GROUP BY {_DIGEST}) "
        f"SELECT {ROW}, {_PARTITION}, wanted.{_DIGEST}, found.{_ROWS} FROM wanted "
        f"LEFT JOIN found ON wanted.{_DIGEST} = found.{_DIGEST}"
    )


def _key_condition(layout: Layout, block: Block) -> list[str]:
    """Return the SQL condition that the keys allow on rows of the block, which the server's index serves; [] for none.

    Only of parts of the keys that are computed from columns that the block fills: another column's default may have
    another value now (`now()`), or may have been altered. Without floats: a NaN in the key equals nothing.
    """
    parts = (
        _DIRECTION.sub("", part) for key in (layout.partition_key, layout.sorting_key) for part in split_at_commas(key)
    )
    usable = dict.fromkeys(part for part in parts if _is_filled(part, layout, block))
    if not usable:
        return []
    key = ", ".join(usable)
    return [f"({key}) IN (SELECT {key} FROM {BLOCK})"]


def _is_filled(part: str, layout: Layout, block: Block) -> bool:
    """Return True when a part of a key is computed from columns that the block fills, none of them a float."""
    columns = names_in(part) & layout.columns.keys()
    return (
        bool(columns)
        and columns <= set(block.column_names)
        and not any("Float" in layout.columns[c].type for c in columns)
    )


def _filled_block(layout: Layout, block: Block) -> str:
    """Return a WITH clause for the block plus the columns that the server fills, as far as the partition needs them."""
    computed = [f"{expression} AS {quote_name(name)}" for name, expression in _computed(layout, block.column_names)]
    return f"filled AS (SELECT {', '.join(['*', *computed])} FROM {BLOCK})"


def _computed(layout: Layout, filled: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (column, SQL expression) of each column that the partition depends on and the block does not fill.

    filled: the block's columns. Default expressions may use further columns, which are followed.
    """
    unvisited_expressions, seen_columns = [layout.partition_key], set(filled)
    while unvisited_expressions:
        for name in sorted(names_in(unvisited_expressions.pop()) & layout.columns.keys() - seen_columns):
            seen_columns.add(name)
            column = layout.columns[name]
            quoted_type = quote_text(column.type)
            default = column.default or f"defaultValueOfTypeName({quoted_type})"
            unvisited_expressions.append(default)
            yield name, f"CAST({default}, {quoted_type})"


def _partition(layout: Layout) -> str:
    """Return the SQL of a row's partition as text."""
    return f"toString(tuple({layout.partition_key}))" if layout.partition_key else "''"


def _digest(layout: Layout, block: Block) -> str:
    """Return the SQL of a 128-bit hash of the columns that the block fills and the server keeps."""
    columns = [_value(name, layout.columns[name].type) for name in layout.lasting(block.column_names)]
    return f"sipHash128(formatRow('RowBinary', {', '.join(columns)}))"


def _value(name: str, kind: str) -> str:
    """Return the SQL of a column's value as it is hashed."""
    # ClickHouse stores the paths of a JSON value in another order than it was sent, so compare its text.
    return f"toString({quote_name(name)})" if _LOOSE.search(kind) else quote_name(name)


def _search(client: Client, layout: Layout, block: Block) -> Sequence[Sequence[Any]]:
    """Send the block, its rows numbered from 0, as an external table, and return the result of `_search_query`.

    Each result row is (row number, partition, hash, number of rows of the table with this hash).
    """
    types = {name: layout.columns[name].type for name in block.column_names}
    rows: Sequence[Sequence[Any]] = client.query(
        _search_query(layout, block),
        settings=read_settings(client) | _SETTINGS,
        external_data=external_table(block, types),
    ).result_rows
    return rows
