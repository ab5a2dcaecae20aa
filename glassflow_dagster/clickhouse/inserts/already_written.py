"""Search for rows of a block that a table has already, by their values.

Used after a restart of the server, when insert tokens are unreliable. ClickHouse inserts a block's rows of one
partition as one part, so all of them are in the table or none. Rows are compared by a hash of the columns that the
block fills; a column with the record's position in Kafka or with the batch time makes rows of different records
distinct. If all rows of a partition equal rows of other records, it cannot be known whether they were inserted: they
count as written.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.identifiers import full_name, names_in, quote_name, quote_text
from glassflow_dagster.clickhouse.inserts.block import Block
from glassflow_dagster.clickhouse.inserts.external_block import BLOCK, ROW, external_table, read_settings
from glassflow_dagster.clickhouse.layout import Layout

# Types that may store one value in several forms.
_LOOSE = re.compile(r"\b(JSON|Dynamic|Variant)\b")

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
    missing = [row for rows in by_partition.values() if not _is_part_written(rows, layout) for row, _, _ in rows]
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


def _is_part_written(rows: Sequence[tuple[int, bytes, int]], layout: Layout) -> bool:
    """Return True when the table has the block's rows of one partition.

    rows: (row number, hash of its values, number of rows of the table with this hash).
    """
    wanted = Counter(digest for _, digest, _ in rows)
    written = {digest: count for _, digest, count in rows}
    # The number of hashes of which the table has at least as many rows as the block.
    complete = sum(written[digest] >= count for digest, count in wanted.items())
    # Merges and a TTL remove single rows of a part; any remaining row proves that the part was inserted.
    return complete == len(wanted) if layout.keeps_rows else complete > 0


def _search_query(layout: Layout, block: Block) -> str:
    """Return the SELECT of (row number, partition, hash, number of rows of the table with this hash) for a block.

    The block is sent along as the external table `glassflow_block`. The CTEs: `filled` is the block with the columns
    that the server fills, `wanted` has its rows' partitions and hashes, `there` the number of the table's rows by hash.
    """
    table = full_name(layout.database, layout.table)
    digest = _digest(layout, block)
    key = layout.sorting_key
    by_key = f"({key}) IN (SELECT {key} FROM filled) AND " if _can_filter_by_sorting_key(layout) else ""
    return (
        f"WITH {_filled_block(layout, block)}, "
        f"wanted AS (SELECT {ROW}, {_partition(layout)} AS part, {digest} AS digest FROM filled), "
        f"there AS (SELECT {digest} AS digest, count() AS rows FROM {table} "
        f"WHERE {by_key}{digest} IN (SELECT digest FROM wanted) GROUP BY digest) "
        f"SELECT {ROW}, part, wanted.digest, there.rows FROM wanted LEFT JOIN there ON wanted.digest = there.digest"
    )


def _filled_block(layout: Layout, block: Block) -> str:
    """Return a WITH clause for the block plus the columns that the server fills, as far as the keys depend on them."""
    computed = [f"{expression} AS {quote_name(name)}" for name, expression in _computed(layout, block.column_names)]
    return f"filled AS (SELECT {', '.join(['*', *computed])} FROM {BLOCK})"


def _computed(layout: Layout, filled: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (column, SQL expression) of each column that the table's keys depend on and the block does not fill.

    filled: the block's columns. Default expressions may use further columns, which are followed.
    """
    unvisited_expressions, seen_columns = [layout.partition_key, layout.sorting_key], set(filled)
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
    """Return the SQL of a 128-bit hash of the columns that the block fills."""
    columns = [_value(name, layout.columns[name].type) for name in block.column_names]
    return f"sipHash128(formatRow('RowBinary', {', '.join(columns)}))"


def _value(name: str, kind: str) -> str:
    """Return the SQL of a column's value as it is hashed."""
    # ClickHouse stores the paths of a JSON value in another order than it was sent, so compare its text.
    return f"toString({quote_name(name)})" if _LOOSE.search(kind) else quote_name(name)


def _can_filter_by_sorting_key(layout: Layout) -> bool:
    """Return True when the table has a sorting key without floats: a NaN in the key equals nothing."""
    kinds = [layout.columns[name].type for name in names_in(layout.sorting_key) & layout.columns.keys()]
    return bool(layout.sorting_key) and not any("Float" in kind for kind in kinds)


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
