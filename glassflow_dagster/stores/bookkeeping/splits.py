"""Progress notes on blocks that ClickHouse rejected and that are split, so that a repeated batch splits them equally.

A row of the table is one note. Row numbers count within the block. With `done` true, the block is done up to
`until`: all rows before it are in the target or listed in `refused`. With `done` false, the rows [from, until) were
rejected together and are sent in smaller parts.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.schema import BATCH, WRITE_EVERYWHERE, BookkeepingTable, Column
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import fetch

SPLITS = BookkeepingTable(
    "glassflow_splits",
    (
        *BATCH,
        Column("block", "String"),
        Column("from", "UInt32"),
        Column("until", "UInt32"),
        Column("done", "Bool"),
        Column("refused", "Array(Tuple(row UInt32, reason String))"),
    ),
    order_by="(pipeline_id, checkpoint_id, batch_id, block)",
    settings=WRITE_EVERYWHERE,
)


class RefusedRow(NamedTuple):
    """A row that ClickHouse rejected: its number within the block, and the server's reason in one line."""

    row: int
    reason: str


@dataclass(frozen=True)
class Split:
    """The notes on one block, combined.

    split_parts: row ranges [first, until) that were rejected and split.
    done_until: all rows before it are in the target or in `refused`.
    """

    split_parts: frozenset[tuple[int, int]] = frozenset()
    done_until: int = 0
    refused: tuple[RefusedRow, ...] = ()


@dataclass(frozen=True)
class BatchName:
    """The identity of a batch, and the database of its bookkeeping tables."""

    database: str
    pipeline_id: str
    checkpoint_id: str
    batch_id: int


@dataclass(frozen=True)
class SplitNote:
    """One note on a block, identified by its insert token `block`.

    done: all rows before `until` are in the target or in `refused`; otherwise [first, until) was rejected and is split.
    """

    block: str
    first: int
    until: int
    done: bool
    refused: tuple[RefusedRow, ...] = ()


def insert_split_note(inserter: Inserter, batch: BatchName, note: SplitNote, token: Token) -> None:
    """Insert a note on a block under its insert token; raises what `Inserter.insert` raises."""
    row = {
        "pipeline_id": batch.pipeline_id,
        "checkpoint_id": batch.checkpoint_id,
        "batch_id": batch.batch_id,
        "block": note.block,
        "from": note.first,
        "until": note.until,
        "done": note.done,
        "refused": [refused._asdict() for refused in note.refused],
    }
    SPLITS.insert(inserter, batch.database, pa.Table.from_pylist([row], schema=SPLITS.schema), token)


def read_splits(client: Client, batch: BatchName) -> dict[str, Split]:
    """Return the combined notes that earlier runs of a batch wrote: block (its insert token) -> split."""
    notes = fetch(
        client,
        f"SELECT block, `from`, until, done, refused FROM {SPLITS.full_name(batch.database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} AND batch_id = {batch:UInt64} "
        "ORDER BY until",
        {"pipeline": batch.pipeline_id, "checkpoint_id": batch.checkpoint_id, "batch": batch.batch_id},
    )
    splits: dict[str, Split] = {}
    # In the order of `until`, so that of several done notes on a block the farthest one counts.
    for block, first, until, done, refused in notes:
        split = splits.get(block, Split())
        if done:
            # A done note lists all rejected rows before `until`.
            rows = tuple(RefusedRow(row["row"], row["reason"]) for row in refused)
            splits[block] = Split(split_parts=split.split_parts, done_until=until, refused=rows)
        else:
            splits[block] = Split(
                split_parts=split.split_parts | {(first, until)}, done_until=split.done_until, refused=split.refused
            )
    return splits
