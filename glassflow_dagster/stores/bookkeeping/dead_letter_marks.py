"""Marks of dead letters that were replayed or purged, by which the ledger's counts still add up.

A replay's mark has the batch and position that the record was first read in, and the attempt. It also indexes the
replay topic: it has the record's offset in it, and the topic's id, as offsets begin again in a topic that was deleted
and created again. A dead letter that is purged is marked first and deleted then; once marked, no command shows it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.schema import (
    BATCH_TIME,
    CHECKPOINT_ID,
    EXPIRES_AT,
    ITEM,
    ONLY_TABLE,
    ORIGIN_BATCH_TIME,
    PIPELINE_ID,
    POSITION,
    BookkeepingTable,
    Column,
)
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import fetch


def _marks(name: str, batch_time: Column, *own: Column) -> BookkeepingTable:
    """Return a table of marks, by what identifies a dead letter. own: further columns."""
    return BookkeepingTable(
        name,
        (PIPELINE_ID, CHECKPOINT_ID, batch_time, *POSITION, ITEM, ONLY_TABLE, *own, EXPIRES_AT),
        order_by="(pipeline_id, checkpoint_id, topic, partition, offset)",
        ttl="expires_at",
    )


PURGES = _marks("glassflow_purges", BATCH_TIME)
REPLAYS = _marks(
    "glassflow_replays",
    ORIGIN_BATCH_TIME,
    Column("attempt", "UInt16"),
    Column("replay_offset", "UInt64"),
    Column("replay_topic_id", "LowCardinality(String)"),
)

# The columns that identify a dead letter within its pipeline. The batch is one of them: a topic that was deleted and
# created again has other records at the same positions.
DEAD_LETTER_ID = "checkpoint_id, batch_time, topic, partition, offset, item, only_table"


@dataclass(frozen=True)
class ReplayMark:
    """One dead letter that was sent to the replay topic.

    origin_batch_time_ms, topic, partition, offset, item: the event's first read (its origin).
    only_table: the only table that lacks it, or ''.
    attempt: 1 for the first replay.
    replay_offset: its offset in the replay topic, whose id is replay_topic_id, '' where the brokers give none.
    expires_at: seconds since 1970.
    """

    checkpoint_id: str
    origin_batch_time_ms: int
    topic: str
    partition: int
    offset: int
    item: int
    only_table: str
    attempt: int
    replay_offset: int
    replay_topic_id: str
    expires_at: int


def insert_replay_marks(
    inserter: Inserter, database: str, pipeline_id: str, marks: Sequence[ReplayMark], token: Token
) -> None:
    """Insert replay marks as one block under its insert token; raises what `Inserter.insert` raises."""
    rows = [
        {"pipeline_id": pipeline_id, **vars(mark), ORIGIN_BATCH_TIME.name: mark.origin_batch_time_ms} for mark in marks
    ]
    REPLAYS.insert(inserter, database, pa.Table.from_pylist(rows, schema=REPLAYS.schema), token)


def last_replay_offset(client: Client, database: str, pipeline_id: str, replay_topic_id: str) -> int | None:
    """Return the greatest marked offset of the pipeline's replay topic with this id; None when there is no mark."""
    query = (
        f"SELECT count(), max(replay_offset) FROM {REPLAYS.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND replay_topic_id = {topic_id:String}"
    )
    marks, last = fetch(client, query, {"pipeline": pipeline_id, "topic_id": replay_topic_id})[0]
    return int(last) if marks else None


def replayed_attempts_query(database: str) -> str:
    """Return the SELECT of the replayed attempts: checkpoint, origin, table, attempt. Query parameter: `pipeline`."""
    return (
        "SELECT checkpoint_id, origin_batch_time, topic, partition, offset, item, only_table, attempt "
        f"FROM {REPLAYS.full_name(database)} WHERE pipeline_id = {{pipeline:String}}"
    )


def mark_purged_statement(database: str, dead_letters: str) -> str:
    """Return the INSERT that marks dead letters as purged. dead_letters: the SELECT of them."""
    columns = ", ".join(PURGES.column_names)
    return f"INSERT INTO {PURGES.full_name(database)} ({columns}) SELECT {columns} FROM ({dead_letters})"


def purged_ids_query(database: str, pipeline: str) -> str:
    """Return the SELECT of `DEAD_LETTER_ID` of a pipeline's purged dead letters. pipeline: its id as SQL."""
    return f"SELECT {DEAD_LETTER_ID} FROM {PURGES.full_name(database)} WHERE pipeline_id = {pipeline}"


def count_purged(client: Client, database: str, pipeline_id: str) -> int:
    """Return the number of a pipeline's purged dead letters whose marks have not expired."""
    query = f"SELECT count() FROM {PURGES.full_name(database)} WHERE pipeline_id = {{pipeline:String}}"
    return int(fetch(client, query, {"pipeline": pipeline_id})[0][0])
