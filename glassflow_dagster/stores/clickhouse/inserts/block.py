"""The rows of one insert, in a format that ClickHouse reads: Arrow, or RowBinary.

A pipeline's rows are RowBinary from the mapping to the insert. Rows of the project's own tables are Arrow.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import pyarrow as pa


class Block(Protocol):
    """Rows with the columns of a table, or some of them."""

    @property
    def format(self) -> str:
        """ClickHouse's name of the format."""

    @property
    def column_names(self) -> Sequence[str]:
        """The columns that the rows fill."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    @property
    def is_distinct(self) -> bool:
        """True when no other record makes a row that equals one of these, as each has its record's position."""

    def slice(self, first: int, rows: int) -> Self:
        """Return `rows` rows from the row `first` on."""

    def take(self, rows: Sequence[int]) -> Self:
        """Return the rows with these numbers."""

    def body(self) -> bytes:
        """Return the rows as the body of one insert, which ClickHouse reads as one block."""

    def numbered_body(self, column: str) -> bytes:
        """Return the same with one more column at the end, UInt32: the rows' numbers, from 0."""


@dataclass(frozen=True)
class ArrowBlock:
    """Rows as an Arrow table without dictionary columns."""

    table: pa.Table
    format = "ArrowStream"
    is_distinct = False

    @property
    def column_names(self) -> Sequence[str]:
        """The table's columns."""
        names: list[str] = self.table.column_names
        return names

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def slice(self, first: int, rows: int) -> "ArrowBlock":
        """Return `rows` rows from the row `first` on."""
        return ArrowBlock(self.table.slice(first, rows))

    def take(self, rows: Sequence[int]) -> "ArrowBlock":
        """Return the rows with these numbers."""
        return ArrowBlock(self.table.take(rows))

    def body(self) -> bytes:
        """Return the table as an Arrow stream of a single record batch, which ClickHouse reads as one block.

        Raises `ValueError` for a column above 2 GiB, which Arrow splits.
        """
        return _to_ipc_stream(self.table)

    def numbered_body(self, column: str) -> bytes:
        """Return the same with one more column at the end, UInt32: the rows' numbers, from 0."""
        return _to_ipc_stream(self.table.append_column(column, pa.array(range(self.num_rows), pa.uint32())))


@dataclass(frozen=True)
class RowBinaryBlock:
    """Rows whose values are in ClickHouse's format RowBinary.

    columns: (name, type) of each value of a row, the type exactly as the server writes it.
    rows: BINARY, one value per row, none of them NULL.
    The types go along, so that the server refuses the block where a column has got another type meanwhile:
    https://clickhouse.com/docs/interfaces/formats/RowBinaryWithNamesAndTypes
    """

    columns: tuple[tuple[str, str], ...]
    rows: pa.ChunkedArray
    is_distinct: bool = False
    format = "RowBinaryWithNamesAndTypes"

    @property
    def column_names(self) -> Sequence[str]:
        """The columns that the rows fill."""
        return [name for name, _ in self.columns]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def slice(self, first: int, rows: int) -> "RowBinaryBlock":
        """Return `rows` rows from the row `first` on."""
        return replace(self, rows=self.rows.slice(first, rows))

    def take(self, rows: Sequence[int]) -> "RowBinaryBlock":
        """Return the rows with these numbers."""
        return replace(self, rows=self.rows.take(pa.array(rows, pa.int64())))

    def body(self) -> bytes:
        """Return names and types, and the rows, one after the other, as they are in Arrow's buffers already."""
        return b"".join([_header(self.columns), *(_values(chunk) for chunk in self.rows.chunks)])

    def numbered_body(self, column: str) -> bytes:
        """Return the same with one more column at the end, UInt32: the rows' numbers, from 0."""
        parts = [_header((*self.columns, (column, "UInt32")))]
        for number, row in enumerate(self.rows.to_pylist()):
            parts += (row, struct.pack("<I", number))
        return b"".join(parts)


def _header(columns: Sequence[tuple[str, str]]) -> bytes:
    """Return the number of columns, their names, and their types."""
    texts = [name for name, _ in columns] + [kind for _, kind in columns]
    return b"".join([_varint(len(columns)), *map(_text, texts)])


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _varint(len(encoded)) + encoded


def _varint(number: int) -> bytes:
    """Return a number in LEB128: seven bits in a byte, the lowest ones first."""
    found = bytearray()
    while number >= 0x80:  # noqa: PLR2004 - of a byte, the bit that says that another one follows
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _values(chunk: pa.Array) -> memoryview:
    """Return the bytes of all values of an array of BINARY or LARGE_BINARY, without a copy."""
    _, offsets, data = chunk.buffers()
    width = np.dtype(np.int64 if pa.types.is_large_binary(chunk.type) else np.int32)
    bounds = np.frombuffer(offsets, width, count=chunk.offset + len(chunk) + 1)
    return memoryview(data)[int(bounds[chunk.offset]) : int(bounds[-1])] if data else memoryview(b"")


def _to_ipc_stream(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream of a single record batch; raises `ValueError` for a column above 2 GiB."""
    whole = table.combine_chunks()
    # An empty table has no batch at all; it is sent as one empty batch.
    batches = whole.to_batches(max_chunksize=max(whole.num_rows, 1)) or [pa.RecordBatch.from_pylist([], whole.schema)]
    if len(batches) != 1:
        raise ValueError(f"a block must be one record batch, not {len(batches)}: a column is larger than Arrow's 2 GiB")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(batches[0])
    body: bytes = sink.getvalue().to_pybytes()
    return body
