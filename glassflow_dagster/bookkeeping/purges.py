"""The dead letters that were deleted on purpose, so that the ledger still adds up.

Which ones go is marked first, then they are deleted. What is marked is gone for every command already.
"""

from glassflow_dagster.bookkeeping.schema import (
    BATCH_TIME,
    CHECKPOINT_ID,
    EXPIRES_AT,
    PIPELINE_ID,
    POSITION,
    BookkeepingTable,
)

PURGES = BookkeepingTable(
    "glassflow_purges",
    (PIPELINE_ID, CHECKPOINT_ID, BATCH_TIME, *POSITION, EXPIRES_AT),
    order_by="(pipeline_id, checkpoint_id, topic, partition, offset)",
    ttl="expires_at",
)

# What tells one dead letter of a pipeline from all others.
LETTER_ID = "checkpoint_id, topic, partition, offset"


def mark_purged_statement(database: str, letters: str) -> str:
    """Write the statement that marks the dead letters of a query as purged."""
    columns = ", ".join(PURGES.column_names)
    return f"INSERT INTO {PURGES.full_name(database)} ({columns}) SELECT {columns} FROM ({letters})"


def purged_letters(database: str, pipeline: str) -> str:
    """Write the query for the ids of a pipeline's purged letters; pipeline: its id, as SQL."""
    return f"SELECT {LETTER_ID} FROM {PURGES.full_name(database)} WHERE pipeline_id = {pipeline}"
