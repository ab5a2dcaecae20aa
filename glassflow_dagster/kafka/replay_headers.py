"""What a record on a replay topic says of itself, in headers beside its own.

Only `dead-letters replay` writes them, and only on a pipeline's replay topic are they believed: there an exemption
from deduplication lets a record pass whose key it claimed itself, when it was read for the first time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

CHECKPOINT_ID = "glassflow-checkpoint-id"
ORIGIN_TOPIC = "glassflow-origin-topic"
ORIGIN_PARTITION = "glassflow-origin-partition"
ORIGIN_OFFSET = "glassflow-origin-offset"
ATTEMPT = "glassflow-attempt"
PASSED_DEDUP = "glassflow-passed-dedup"

_OWN = frozenset({CHECKPOINT_ID, ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ATTEMPT, PASSED_DEDUP})

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Replay:
    """Where a record was first read, by which checkpoint, and how often it was sent again.

    `passed_dedup`: it was let pass by deduplication before, so it is no duplicate of itself.
    """

    checkpoint_id: str
    topic: str
    partition: int
    offset: int
    attempt: int
    passed_dedup: bool

    def headers(self) -> list[Header]:
        """Write it as headers."""
        texts = {
            CHECKPOINT_ID: self.checkpoint_id,
            ORIGIN_TOPIC: self.topic,
            ORIGIN_PARTITION: str(self.partition),
            ORIGIN_OFFSET: str(self.offset),
            ATTEMPT: str(self.attempt),
        }
        if self.passed_dedup:
            texts[PASSED_DEDUP] = "true"
        return [(name, text.encode()) for name, text in texts.items()]


def read_replay(headers: Iterable[Header]) -> Replay | None:
    """Read a replay's headers; None for a record that somebody else wrote."""
    found = {name: (value or b"").decode(errors="replace") for name, value in headers if name in _OWN}
    try:
        return Replay(
            checkpoint_id=found[CHECKPOINT_ID],
            topic=found[ORIGIN_TOPIC],
            partition=int(found[ORIGIN_PARTITION]),
            offset=int(found[ORIGIN_OFFSET]),
            attempt=int(found[ATTEMPT]),
            passed_dedup=found.get(PASSED_DEDUP) == "true",
        )
    except (KeyError, ValueError):
        return None


def without_replay(headers: Iterable[Header]) -> list[Header]:
    """Give the headers that the record had of its own."""
    return [(name, value) for name, value in headers if name not in _OWN]
