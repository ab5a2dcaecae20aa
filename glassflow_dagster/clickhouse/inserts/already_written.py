"""Which rows of a block are in a table already, told by their values.

Asked where tokens cannot be believed: behind a restart of the server. A block's rows of one partition are one part, and
so are in the table all or not at all. They are looked for by a hash of the columns that the block fills; a column with
the record's place in Kafka or with the batch time makes rows of different records differ. Of a partition whose rows all
equal rows that were written before, it cannot be told whether they came twice: they count as written.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.external import ExternalData

from glassflow_dagster.clickhouse.identifiers import full_name, names_in, quote_name, quote_text
from glassflow_dagster.clickhouse.inserts.arrow_stream import to_ipc_stream
from glassflow_dagster.clickhouse.layout import Layout

# Types whose values may be kept in several ways.
_LOOSE = re.compile(r"\b(JSON|Dynamic|Variant)\b")
_BLOCK = "glassflow_block"
_ROW = "glassflow_row"

_SETTINGS = {
    # A NULL in the key is found, too.
    "transform_null_in": 1,
    # The block's columns have the table's types, whatever these are.
    "allow_suspicious_low_cardinality_types": 1,
    "input_format_null_as_default": 0,
}


def missing_rows(client: Client, layout: Layout, block: pa.Table) -> list[int]:
    """Give the numbers of the block's rows that are not in the table: all of a partition's, or none of them."""
    found = _ask(client, _found(layout, block), layout, block)
    by_partition: dict[str, list[tuple[int, bytes, int]]] = defaultdict(list)
    for row, partition, digest, count in found:
        by_partition[str(partition)].append((row, digest, count))
    missing = [row for rows in by_partition.values() if not _is_written(rows, layout) for row, _, _ in rows]
    return sorted(missing)


def written_rows(client: Client, layout: Layout, block: pa.Table) -> list[int]:
    """Give the numbers of rows whose values are in the table, of equal ones as many as are there.

    Nothing for an engine whose merges change rows. Errors of the client are its own.
    """
    if layout.changes_rows:
        return []
    left: dict[bytes, int] = {}
    written = []
    for row, _, digest, count in _ask(client, _found(layout, block), layout, block):
        if left.setdefault(digest, count):
            left[digest] -= 1
            written.append(row)
    return sorted(written)


def _is_written(rows: Sequence[tuple[int, bytes, int]], layout: Layout) -> bool:
    """Whether a partition's rows are there; rows: (number, digest, how many rows of the table have it)."""
    wanted = Counter(digest for _, digest, _ in rows)
    there = {digest: count for _, digest, count in rows}
    found = sum(there[digest] >= count for digest, count in wanted.items())
    # Merges and a TTL take single rows of a part away; what is left of it tells that it was there.
    return found == len(wanted) if layout.keeps_rows else found > 0


def _found(layout: Layout, block: pa.Table) -> str:
    table = full_name(layout.database, layout.table)
    digest = _digest(layout, block)
    key = layout.sorting_key
    narrowed = f"({key}) IN (SELECT {key} FROM filled) AND " if _narrows(layout) else ""
    return (
        f"WITH {_block(layout, block)}, "
        f"wanted AS (SELECT {_ROW}, {_partition(layout)} AS part, {digest} AS digest FROM filled), "
        f"there AS (SELECT {digest} AS digest, count() AS rows FROM {table} "
        f"WHERE {narrowed}{digest} IN (SELECT digest FROM wanted) GROUP BY digest) "
        f"SELECT {_ROW}, part, wanted.digest, there.rows FROM wanted LEFT JOIN there ON wanted.digest = there.digest"
    )


def _block(layout: Layout, block: pa.Table) -> str:
    """Name the block with the columns that the server fills, as far as the keys rest on them."""
    computed = [f"{expression} AS {quote_name(name)}" for name, expression in _computed(layout, block.column_names)]
    return f"filled AS (SELECT {', '.join(['*', *computed])} FROM {_BLOCK})"


def _computed(layout: Layout, filled: Sequence[str]) -> Iterator[tuple[str, str]]:
    waiting, seen = [layout.partition_key, layout.sorting_key], set(filled)
    while waiting:
        for name in sorted(names_in(waiting.pop()) & layout.columns.keys() - seen):
            seen.add(name)
            column = layout.columns[name]
            kind = quote_text(column.type)
            default = column.default or f"defaultValueOfTypeName({kind})"
            waiting.append(default)
            yield name, f"CAST({default}, {kind})"


def _partition(layout: Layout) -> str:
    return f"toString(tuple({layout.partition_key}))" if layout.partition_key else "''"


def _digest(layout: Layout, block: pa.Table) -> str:
    columns = [_value(name, layout.columns[name].type) for name in block.column_names]
    return f"sipHash128(formatRow('RowBinary', {', '.join(columns)}))"


def _value(name: str, kind: str) -> str:
    # The bytes of one JSON are others in a table than before: its paths come in another order.
    return f"toString({quote_name(name)})" if _LOOSE.search(kind) else quote_name(name)


def _narrows(layout: Layout) -> bool:
    """Whether the sorting key finds rows: nothing equals NaN."""
    kinds = [layout.columns[name].type for name in names_in(layout.sorting_key) & layout.columns.keys()]
    return bool(layout.sorting_key) and not any("Float" in kind for kind in kinds)


def _ask(client: Client, query: str, layout: Layout, block: pa.Table) -> Sequence[Sequence[Any]]:
    numbered = block.append_column(_ROW, pa.array(range(block.num_rows), pa.uint32()))
    types = {name: layout.columns[name].type for name in block.column_names} | {_ROW: "UInt32"}
    data = ExternalData(
        file_name=f"{_BLOCK}.arrow",
        data=to_ipc_stream(numbered),
        fmt="ArrowStream",
        structure=", ".join(f"{quote_name(name)} {kind}" for name, kind in types.items()),
    )
    rows: Sequence[Sequence[Any]] = client.query(query, settings=_SETTINGS, external_data=data).result_rows
    return rows
