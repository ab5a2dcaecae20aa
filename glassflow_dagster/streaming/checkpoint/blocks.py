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
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            fitting = _fitting_rows(rest.column("size"), limits.rows - rows, limits.bytes - size, empty=not pending)
            taken = rest.slice(0, fitting)
            if fitting:
                pending.append(taken)
                rows += fitting
                size += pc.sum(taken.column("size")).as_py()
            rest = rest.slice(fitting)
            if rest.num_rows or rows == limits.rows:
                yield pa.Table.from_batches(pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending)


def _fitting_rows(sizes: pa.Array, rows: int, size: int, *, empty: bool) -> int:
    """Return the number of leading rows that fit into the rest of a block.

    sizes: bytes of each row. rows, size: the rows and bytes that the block still has room for. empty: the block has no
    row yet, so that one row fits in any case.
    """
    within = pc.less_equal(pc.cumulative_sum(sizes.cast(pa.int64())), size)
    fitting = min(pc.sum(within).as_py() or 0, rows)
    return max(fitting, 1) if empty else fitting
