"""Cuts a partition's rows into blocks: the same rows in the same order always give the same blocks.

How the rows are split into Arrow batches on their way makes no difference.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class BlockLimits:
    """The limits of one insert: its rows, and the bytes of their raw records."""

    rows: int
    bytes: int


def cut(batches: Iterable[pa.RecordBatch], limits: BlockLimits) -> Iterator[pa.Table]:
    """Yield the rows of Arrow batches as blocks within the limits; a row beyond the byte limit is a block of its own.

    Columns in and out are the same; `size` INT is the bytes of a row's raw record.
    """
    # The parts of the block that is being filled, and its size so far.
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        uncut = batch
        while uncut.num_rows:
            fitting = _fitting_rows(uncut.column("size"), limits.rows - rows, limits.bytes - size, empty=not pending)
            taken = uncut.slice(0, fitting)
            if fitting:
                pending.append(taken)
                rows += fitting
                size += pc.sum(taken.column("size")).as_py()
            uncut = uncut.slice(fitting)
            # The block is full: the next row does not fit, or it has all the rows that it may have.
            if uncut.num_rows or rows == limits.rows:
                yield pa.Table.from_batches(pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending)


def _fitting_rows(sizes: pa.Array, free_rows: int, free_bytes: int, *, empty: bool) -> int:
    """Return the number of leading rows that fit into the free space of a block.

    sizes: bytes of each row.
    free_rows, free_bytes: what the block still has room for.
    empty: the block has no row yet, so that one row fits in any case.
    """
    # True for each row up to which all rows fit.
    fits = pc.less_equal(pc.cumulative_sum(sizes.cast(pa.int64())), free_bytes)
    fitting = min(pc.sum(fits).as_py() or 0, free_rows)
    return max(fitting, 1) if empty else fitting
