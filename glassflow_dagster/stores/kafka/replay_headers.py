"""The headers that mark a record on a replay topic as a replayed dead letter.

Only `dead-letters replay` writes them, and they are honoured only on a pipeline's replay topic. One of them exempts the
record from deduplication: the record may already have put its key into the state when it was first read.
"""

from collections.abc import Iterable
from dataclasses import dataclass

CHECKPOINT_ID = "glassflow-checkpoint-id"
ORIGIN_BATCH_TIME = "glassflow-origin-batch-time"
ORIGIN_TOPIC = "glassflow-origin-topic"
ORIGIN_PARTITION = "glassflow-origin-partition"
ORIGIN_OFFSET = "glassflow-origin-offset"
ORIGIN_ITEM = "glassflow-origin-item"
ONLY_TABLE = "glassflow-only-table"
ATTEMPT = "glassflow-attempt"
PASSED_DEDUP = "glassflow-passed-dedup"

_REPLAY_HEADERS = frozenset({
    CHECKPOINT_ID, ORIGIN_BATCH_TIME, ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_ITEM, ONLY_TABLE, ATTEMPT,
    PASSED_DEDUP,
})  # fmt: skip
# The item of a record that is one event, or was not split into its events.
WHOLE_RECORD = -1

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Replay:
    """The origin of a replayed record: its first position, the checkpoint that read it, and the number of replays.

    item: the index of the event in the record that it was first read from, whose value is then that event alone;
    `WHOLE_RECORD` for any other record.
    batch_time_ms: the time of the batch that first read it; 0 where an earlier version did, and did not keep it.
    only_table: of an event that went to several tables, the one that refused it, as `database.table`; else ''.
    `passed_dedup`: deduplication accepted it before, so it must not be dropped as a duplicate of itself.
    """

    checkpoint_id: str
    topic: str
    partition: int
    offset: int
    attempt: int
    passed_dedup: bool
    item: int = WHOLE_RECORD
    only_table: str = ""
    batch_time_ms: int = 0

    def headers(self) -> list[Header]:
        """Return the Kafka headers for this origin."""
        texts = {
            CHECKPOINT_ID: self.checkpoint_id,
            ORIGIN_TOPIC: self.topic,
            ORIGIN_PARTITION: str(self.partition),
            ORIGIN_OFFSET: str(self.offset),
            ATTEMPT: str(self.attempt),
        }
        if self.batch_time_ms:
            texts[ORIGIN_BATCH_TIME] = str(self.batch_time_ms)
        if self.item != WHOLE_RECORD:
            texts[ORIGIN_ITEM] = str(self.item)
        if self.only_table:
            texts[ONLY_TABLE] = self.only_table
        if self.passed_dedup:
            texts[PASSED_DEDUP] = "true"
        return [(name, text.encode()) for name, text in texts.items()]


def read_replay(headers: Iterable[Header]) -> Replay | None:
    """Parse a replayed record's headers; None when they are missing or invalid: another producer wrote the record."""
    # A null value counts as an empty text.
    texts = {name: (value or b"").decode(errors="replace") for name, value in headers if name in _REPLAY_HEADERS}
    try:
        return Replay(
            checkpoint_id=texts[CHECKPOINT_ID],
            topic=texts[ORIGIN_TOPIC],
            partition=int(texts[ORIGIN_PARTITION]),
            offset=int(texts[ORIGIN_OFFSET]),
            attempt=int(texts[ATTEMPT]),
            passed_dedup=texts.get(PASSED_DEDUP) == "true",
            item=int(texts.get(ORIGIN_ITEM, WHOLE_RECORD)),
            only_table=texts.get(ONLY_TABLE, ""),
            batch_time_ms=int(texts.get(ORIGIN_BATCH_TIME, 0)),
        )
    except (KeyError, ValueError):
        return None


def without_replay(headers: Iterable[Header]) -> list[Header]:
    """Return the headers that the record had before it was replayed."""
    return [(name, value) for name, value in headers if name not in _REPLAY_HEADERS]
