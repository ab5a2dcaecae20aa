"""Serialization of a block of rows as an Arrow IPC stream."""

import pyarrow as pa


def to_ipc_stream(block: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream of a single record batch, which ClickHouse reads as one block.

    Raises `ValueError` for a column above 2 GiB, which Arrow splits. The table must not have dictionary columns.
    """
    whole = block.combine_chunks()
    # An empty table has no batch at all; it is sent as one empty batch.
    batches = whole.to_batches(max_chunksize=max(whole.num_rows, 1)) or [pa.RecordBatch.from_pylist([], whole.schema)]
    if len(batches) != 1:
        raise ValueError(f"a block must be one record batch, not {len(batches)}: a column is larger than Arrow's 2 GiB")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(batches[0])
    body: bytes = sink.getvalue().to_pybytes()
    return body
