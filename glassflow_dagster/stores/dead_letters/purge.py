"""Deletion of dead letters, such that the ledger's counts still add up.

Dead letters are marked as purged first and deleted then. Once marked, no other command shows them. The next purge
completes one that was interrupted.
"""

from glassflow_dagster.stores.bookkeeping.dead_letter_marks import mark_purged_statement
from glassflow_dagster.stores.bookkeeping.dead_letter_table import delete_purged
from glassflow_dagster.stores.dead_letters.store import DeadLetterStore


def purge(store: DeadLetterStore, condition: str) -> int:
    """Delete the dead letters that fulfil a condition; return their number.

    Raises `WrongCondition`, and `AccessDenied` with the statement to run where the user may not delete.
    """
    count = store.count(condition)
    if count:
        store.execute(mark_purged_statement(store.database, store.query_for(condition)), condition)
    # Also when none fulfils the condition: an interrupted purge may have left marked ones.
    delete_purged(store.client, store.database, store.pipeline_id)
    return count
