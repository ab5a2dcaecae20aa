"""Cuts a partition's rows into blocks: the same rows in the same order give the same blocks, however they arrive."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class BlockLimits:
    """What one insert may hold: rows, and bytes as the raw records had them."""

    rows: int
    bytes: int


def cut(batches: Iterable[pa.RecordBatch], limits: BlockLimits) -> Iterator[pa.Table]:
    """Cut record batches into tables within the limits; a single row beyond the limit of bytes is a block of its own.

    Columns in and out are the same; `size` INT counts a row's bytes.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            fitting = _fitting_rows(rest.column("size"), limits.rows - rows, limits.bytes - size, empty=not held)
            taken = rest.slice(0, fitting)
            if fitting:
                held.append(taken)
                rows += fitting
                size += pc.sum(taken.column("size")).as_py()
            rest = rest.slice(fitting)
            if rest.num_rows or rows == limits.rows:
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _fitting_rows(sizes: pa.Array, rows: int, size: int, *, empty: bool) -> int:
    """How many of the next rows still fit into a block that has room for so many rows and bytes."""
    within = pc.less_equal(pc.cumulative_sum(sizes.cast(pa.int64())), size)
    fitting = min(pc.sum(within).as_py() or 0, rows)
    return max(fitting, 1) if empty else fitting
