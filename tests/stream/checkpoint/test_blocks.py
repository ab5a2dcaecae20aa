"""The same rows in the same order give the same blocks, however they are split into input batches."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from glassflow_dagster.stream.checkpoint.blocks import BlockLimits, cut


def batches(sizes: list[int], cuts: list[int]) -> list[pa.RecordBatch]:
    whole = pa.record_batch({"offset": pa.array(range(len(sizes)), pa.int64()), "size": pa.array(sizes, pa.int32())})
    places = sorted({0, len(sizes), *(c % (len(sizes) + 1) for c in cuts)})
    return [whole.slice(a, b - a) for a, b in pairwise(places)]


SIZES = st.lists(st.integers(0, 50), max_size=60)
CUTS = st.lists(st.integers(0, 100), max_size=6)


@settings(deadline=None, derandomize=True)
@given(SIZES, CUTS, CUTS, st.integers(1, 20), st.integers(1, 200))
def test_blocks_do_not_depend_on_how_rows_arrive(
    sizes: list[int], one: list[int], other: list[int], rows: int, size: int
) -> None:
    limits = BlockLimits(rows, size)
    found = [[b.column("offset").to_pylist() for b in cut(batches(sizes, cuts), limits)] for cuts in (one, other)]
    assert found[0] == found[1]


@settings(deadline=None, derandomize=True)
@given(SIZES, CUTS, st.integers(1, 20), st.integers(1, 200))
def test_no_row_is_lost_and_no_block_beyond_the_limits(sizes: list[int], cuts: list[int], rows: int, size: int) -> None:
    blocks = list(cut(batches(sizes, cuts), BlockLimits(rows, size)))
    assert [offset for b in blocks for offset in b.column("offset").to_pylist()] == list(range(len(sizes)))
    for block in blocks:
        assert 0 < block.num_rows <= rows
        assert block.num_rows == 1 or sum(block.column("size").to_pylist()) <= size
