"""Marks of replayed dead letters: where the record was first read, the attempt, the offset in the replay topic."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.schema import (
    CHECKPOINT_ID,
    EXPIRES_AT,
    ITEM,
    ONLY_TABLE,
    PIPELINE_ID,
    POSITION,
    BookkeepingTable,
    Column,
)
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import fetch

REPLAYS = BookkeepingTable(
    "glassflow_replays",
    (
        PIPELINE_ID,
        CHECKPOINT_ID,
        *POSITION,
        ITEM,
        ONLY_TABLE,
        Column("attempt", "UInt16"),
        Column("replay_offset", "UInt64"),
        EXPIRES_AT,
    ),
    order_by="(pipeline_id, checkpoint_id, topic, partition, offset)",
    ttl="expires_at",
)


@dataclass(frozen=True)
class ReplayMark:
    """One dead letter that was sent to the replay topic.

    topic, partition, offset, item: the event's first read (its origin). only_table: the only table that lacks it, or
    ''. attempt: 1 for the first replay. replay_offset: its offset in the replay topic. expires_at: seconds since 1970.
    """

    checkpoint_id: str
    topic: str
    partition: int
    offset: int
    item: int
    only_table: str
    attempt: int
    replay_offset: int
    expires_at: int


def insert_replay_marks(
    inserter: Inserter, database: str, pipeline_id: str, marks: Sequence[ReplayMark], token: Token
) -> None:
    """Insert replay marks as one block under its insert token; raises what `Inserter.insert` raises."""
    rows = [{"pipeline_id": pipeline_id, **vars(mark)} for mark in marks]
    REPLAYS.insert(inserter, database, pa.Table.from_pylist(rows, schema=REPLAYS.schema), token)


def last_replay_offset(client: Client, database: str, pipeline_id: str) -> int | None:
    """Return the greatest marked offset of the pipeline's replay topic; None when there is no mark."""
    query = (
        f"SELECT count(), max(replay_offset) FROM {REPLAYS.full_name(database)} WHERE pipeline_id = {{pipeline:String}}"
    )
    marks, last = fetch(client, query, {"pipeline": pipeline_id})[0]
    return int(last) if marks else None


def replayed_attempts_query(database: str) -> str:
    """Return the SELECT of the replayed attempts: checkpoint, origin, table, attempt. Query parameter: `pipeline`."""
    return (
        f"SELECT checkpoint_id, topic, partition, offset, item, only_table, attempt FROM {REPLAYS.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String}"
    )
