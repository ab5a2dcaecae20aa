"""Deletes dead letters, so that the books still add up.

Which letters go is marked first (`glassflow_purges`), then they are deleted. An interrupted purge is completed by the
next one: what is marked is gone for every other command already.
"""

from glassflow_dagster.clickhouse.ddl import DEAD_LETTERS, PURGES
from glassflow_dagster.clickhouse.identifiers import quote_text
from glassflow_dagster.clickhouse.queries import execute
from glassflow_dagster.dead_letters.letters import PLACE, LetterBox

_MARKED = "pipeline_id, incarnation, batch_time, topic, partition, offset, expires_at"


def purge(box: LetterBox, condition: str) -> int:
    """Delete the letters that a condition chooses; gives how many they were.

    Raises `WrongCondition`, and `AccessDenied` with the statement to run where the user may not delete.
    """
    chosen = box.count(condition)
    if chosen:
        mark = f"INSERT INTO {box.table(PURGES)} ({_MARKED}) SELECT {_MARKED} FROM ({box.chosen(condition)})"  # noqa: S608
        box.command(mark, condition)
    pipeline = quote_text(box.pipeline_id)
    execute(
        box.client,
        f"ALTER TABLE {box.table(DEAD_LETTERS)} DELETE WHERE pipeline_id = {pipeline} AND ({PLACE}) IN "  # noqa: S608
        f"(SELECT {PLACE} FROM {box.table(PURGES)} WHERE pipeline_id = {pipeline}) SETTINGS mutations_sync = 1",
    )
    return chosen
