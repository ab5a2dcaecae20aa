"""Marks of purged dead letters, so that the ledger's counts still add up after they are deleted.

A dead letter is marked first and deleted then; once marked, no command shows it any more.
"""

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.schema import (
    BATCH_TIME,
    CHECKPOINT_ID,
    EXPIRES_AT,
    ITEM,
    ONLY_TABLE,
    PIPELINE_ID,
    POSITION,
    BookkeepingTable,
)
from glassflow_dagster.stores.clickhouse.queries import fetch

PURGES = BookkeepingTable(
    "glassflow_purges",
    (PIPELINE_ID, CHECKPOINT_ID, BATCH_TIME, *POSITION, ITEM, ONLY_TABLE, EXPIRES_AT),
    order_by="(pipeline_id, checkpoint_id, topic, partition, offset)",
    ttl="expires_at",
)

# The columns that identify a dead letter within its pipeline. The batch is one of them: a topic that was deleted and
# created again has other records at the same positions.
DEAD_LETTER_ID = "checkpoint_id, batch_time, topic, partition, offset, item, only_table"


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
