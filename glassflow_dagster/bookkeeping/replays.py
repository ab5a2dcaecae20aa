"""What was sent to the replay topic: where a record was first read, and which attempt at it this is."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.schema import (
    CHECKPOINT_ID,
    EXPIRES_AT,
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
        Column("attempt", "UInt16"),
        Column("replay_offset", "UInt64"),
        EXPIRES_AT,
    ),
    order_by="(pipeline_id, checkpoint_id, topic, partition, offset)",
    ttl="expires_at",
)


@dataclass(frozen=True)
class ReplayMark:
    """One dead letter that was sent again. `expires_at` is in seconds since 1970."""

    checkpoint_id: str
    topic: str
    partition: int
    offset: int
    attempt: int
    replay_offset: int
    expires_at: int


def insert_replay_marks(
    inserter: Inserter, database: str, pipeline_id: str, marks: Sequence[ReplayMark], token: Token
) -> None:
    """Write marks as one block under its token; raises what `Inserter.insert` raises."""
    rows = [{"pipeline_id": pipeline_id, **vars(mark)} for mark in marks]
    REPLAYS.insert(inserter, database, pa.Table.from_pylist(rows, schema=REPLAYS.schema), token)


def last_replay_offset(client: Client, database: str, pipeline_id: str) -> int | None:
    """Read the greatest offset of the replay topic that is marked; None where nothing is."""
    query = (
        f"SELECT count(), max(replay_offset) FROM {REPLAYS.full_name(database)} WHERE pipeline_id = {{pipeline:String}}"
    )
    marks, last = fetch(client, query, {"pipeline": pipeline_id})[0]
    return int(last) if marks else None


def replayed_letters(database: str) -> str:
    """Write the query for the attempts that were sent; its parameter is `pipeline`."""
    return (
        f"SELECT checkpoint_id, topic, partition, offset, attempt FROM {REPLAYS.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String}"
    )
