"""How far a block that the server refused has been taken apart, so that a repeated batch takes the same turns.

Rows are counted within the block. With `settled`, all rows before `until` are in the table or among `refused`; without,
rows from `from` to `until` were refused together and are sent in parts.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.schema import (
    BATCH,
    WRITE_EVERYWHERE,
    BookkeepingTable,
    Column,
)
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import fetch

SPLITS = BookkeepingTable(
    "glassflow_splits",
    (
        *BATCH,
        Column("block", "String"),
        Column("from", "UInt32"),
        Column("until", "UInt32"),
        Column("settled", "Bool"),
        Column("refused", "Array(Tuple(row UInt32, reason String))"),
    ),
    order_by="(pipeline_id, checkpoint_id, batch_id, block)",
    settings=WRITE_EVERYWHERE,
)


class RefusedRow(NamedTuple):
    """A row that the server does not take: its number within the block, and the server's reason in one line."""

    row: int
    reason: str


@dataclass(frozen=True)
class Split:
    """What was written down of a block: parts that were taken apart, and that rows before `until` are settled."""

    divided: frozenset[tuple[int, int]] = frozenset()
    until: int = 0
    refused: tuple[RefusedRow, ...] = ()


@dataclass(frozen=True)
class BatchName:
    """Which batch blocks belong to, and the database that its bookkeeping tables are in."""

    database: str
    pipeline_id: str
    checkpoint_id: str
    batch_id: int


@dataclass(frozen=True)
class SplitNote:
    """One row of the table: of a block, rows that were refused together, or how far it is settled."""

    block: str
    first: int
    until: int
    settled: bool
    refused: tuple[RefusedRow, ...] = ()


def insert_split_note(inserter: Inserter, batch: BatchName, note: SplitNote, token: Token) -> None:
    """Write a note on a block under its token; raises what `Inserter.insert` raises."""
    row = {
        "pipeline_id": batch.pipeline_id,
        "checkpoint_id": batch.checkpoint_id,
        "batch_id": batch.batch_id,
        "block": note.block,
        "from": note.first,
        "until": note.until,
        "settled": note.settled,
        "refused": [refused._asdict() for refused in note.refused],
    }
    SPLITS.insert(inserter, batch.database, pa.Table.from_pylist([row], schema=SPLITS.schema), token)


def read_splits(client: Client, batch: BatchName) -> dict[str, Split]:
    """Read what earlier runs of a batch wrote down, by block."""
    found = fetch(
        client,
        f"SELECT block, `from`, until, settled, refused FROM {SPLITS.full_name(batch.database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} AND batch_id = {batch:UInt64} "
        "ORDER BY until",
        {"pipeline": batch.pipeline_id, "checkpoint_id": batch.checkpoint_id, "batch": batch.batch_id},
    )
    splits: dict[str, Split] = {}
    for block, first, until, settled, refused in found:
        split = splits.get(block, Split())
        if settled:
            rows = tuple(RefusedRow(row["row"], row["reason"]) for row in refused)
            splits[block] = Split(split.divided, until, rows)
        else:
            splits[block] = Split(split.divided | {(first, until)}, split.until, split.refused)
    return splits
