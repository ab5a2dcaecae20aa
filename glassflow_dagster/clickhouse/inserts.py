"""One block, one request, one token: an insert that may be repeated until its outcome is certain.

ClickHouse drops a block whose token the table knows, provided that the repetition is cut into the same blocks: so one
request is one block, and everything that decides about cutting is pinned and sent again unchanged.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.summary import QuerySummary

from glassflow_dagster.clickhouse.epochs import Epoch
from glassflow_dagster.clickhouse.errors import (
    Answer,
    ClickHouseUnreachable,
    InsertRefused,
    RowsRefused,
    UnclearAnswer,
    classify,
    error_code,
    explain,
)
from glassflow_dagster.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.clickhouse.queries import pauses

# No block may be cut at a size: ClickHouse's own limit, where the block is smaller.
_LEAST_BLOCK_LIMIT = 1_048_449

_PINNED: dict[str, Any] = {
    # The status is sent when the outcome is known; without it an error may come behind a 200.
    "wait_end_of_query": 1,
    # Asynchronous inserts, the default since 26.2, would gather blocks of other requests.
    "async_insert": 0,
    "wait_for_async_insert": 1,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    # A view that fails must fail the insert, or its target misses rows in silence.
    "materialized_views_ignore_errors": 0,
    "min_insert_block_size_rows": 0,
    "min_insert_block_size_bytes": 0,
    # A NULL for a column that takes none is an error and never a silent default.
    "input_format_null_as_default": 0,
}

# Newer servers' own switches, which older ones would refuse as unknown.
_PINNED_WHERE_KNOWN: dict[str, Any] = {
    "deduplicate_insert": "enable",
    "max_insert_block_size_bytes": 0,
    "use_strict_insert_block_limits": 0,
    # A Distributed table answers when the shards have the rows, each row on the shard of its key; its own name for
    # that before 23.12 comes first.
    "insert_distributed_sync": 1,
    "distributed_foreground_insert": 1,
    "insert_distributed_one_random_shard": 0,
    "insert_shard_id": 0,
}


def insert_block(  # noqa: PLR0913, PLR0917 - the parts of one request
    client: Client,
    database: str,
    table: str,
    block: pa.Table,
    token: str,
    deadline: float,
    report: Callable[[str], None],
    epoch: Epoch | None = None,
) -> None:
    """Insert a block under its token, and return when it is certain to be there once.

    `block` has the table's column names; its rows become one ClickHouse block, so the order and number of rows must
    be the same whenever the same token is used. `deadline` is in seconds of `time.monotonic()`; the first attempt is
    made in any case. `epoch` is that of the driver that writes, None for what is no driver's; it is looked at before
    every attempt. Raises `Superseded` when a newer driver has come, `RowsRefused` when values are at fault,
    `InsertRefused` when the table takes nothing, and `ClickHouseUnreachable` when the outcome is still open at the
    deadline.
    """
    if block.num_rows == 0:
        return
    body, settings = _ipc_stream(block), insert_settings(client, token, block.num_rows)
    name = f"{database}.{table}"
    columns = ", ".join(map(quote_name, block.column_names))
    statement = f"INSERT INTO {full_name(database, table)} ({columns}) FORMAT ArrowStream"
    certain = True
    for pause in pauses():
        try:
            if epoch:
                epoch.confirm(client)
            _send(client, statement, body, settings)
        except (ClickHouseError, OSError) as error:
            answer = classify(error)
            if answer is Answer.ROW:
                raise RowsRefused(name, explain(error), certain=certain) from error
            if answer is Answer.TABLE:
                raise InsertRefused(
                    f"{name} takes no rows: {explain(error)}; mend the table (or the user's rights) and start again, "
                    "the batch will be replayed"
                ) from error
            if time.monotonic() + pause > deadline:
                raise ClickHouseUnreachable(
                    f"ClickHouse did not confirm a block for {name}: {explain(error)}; "
                    "look after the server and start again, the block will be repeated under its token"
                ) from error
            unknown = "" if error_code(error) is None else " (taken for passing)"
            report(f"insert into {name}: {explain(error)}{unknown}; again in {pause:.1f} s")
            certain = False
        else:
            return
        time.sleep(pause)


def insert_settings(client: Client, token: str, rows: int) -> dict[str, Any]:
    """Give the settings of an insert of one block under a token; they are the same for every repetition."""
    known = {name: value for name, value in _PINNED_WHERE_KNOWN.items() if name in client.server_settings}
    block_limit = {"max_insert_block_size": max(rows, _LEAST_BLOCK_LIMIT)}
    return {**_PINNED, **known, **block_limit, "insert_deduplication_token": token}


def _send(client: Client, statement: str, body: bytes, settings: dict[str, Any]) -> None:
    """Send one request. An insert that is done has nothing to say: whatever stands in the answer's body is an error."""
    said = client.command(statement, data=body, settings=settings)
    if not isinstance(said, QuerySummary):
        raise UnclearAnswer(str(said))


def _ipc_stream(block: pa.Table) -> bytes:
    """Write a table as an Arrow stream of a single record batch; dictionaries would be cut apart, so none go out."""
    whole = block.combine_chunks()
    batches = whole.to_batches(max_chunksize=whole.num_rows)
    if len(batches) != 1:
        raise ValueError(f"a block must be one record batch, not {len(batches)}: a column is larger than Arrow's 2 GiB")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(batches[0])
    body: bytes = sink.getvalue().to_pybytes()
    return body
