"""Deletes dead letters, so that the ledger still adds up.

Which letters go is marked first, then they are deleted. An interrupted purge is completed by the next one: what is
marked is gone for every other command already.
"""

from glassflow_dagster.bookkeeping.dead_letters import delete_purged
from glassflow_dagster.bookkeeping.purges import mark_purged_statement
from glassflow_dagster.dead_letters.letters import DeadLetterStore


def purge(box: DeadLetterStore, condition: str) -> int:
    """Delete the letters that a condition chooses; gives how many they were.

    Raises `WrongCondition`, and `AccessDenied` with the statement to run where the user may not delete.
    """
    chosen = box.count(condition)
    if chosen:
        box.command(mark_purged_statement(box.database, box.chosen(condition)), condition)
    delete_purged(box.client, box.database, box.pipeline_id)
    return chosen
