"""The tokens of inserts: by its token ClickHouse knows a block that is sent again.

A repeated batch makes the same tokens for the same blocks, and nothing else makes them: pipeline, checkpoint and batch
are part of each, and so is the position in Kafka of the block's first record, which is in one block of its batch only.
What is sent apart has a token of its own, which begins with that of the block it comes from. The texts stay as they
are: a driver repeats a batch that an earlier version began.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """The token of one block; its methods are the tokens of what comes from that block."""

    text: str

    @classmethod
    def of_block(cls, pipeline_id: str, token_prefix: str, batch_id: int, position: Iterable[int]) -> "Token":
        """Return the token of a block of rows.

        token_prefix: what tells the checkpoint's tokens from those of another one. position: of the block's first
        record, as many numbers as tell it from all other records of the batch.
        """
        return cls("/".join([_batch(pipeline_id, token_prefix, batch_id), *map(str, position)]))

    @classmethod
    def of_ledger_row(cls, pipeline_id: str, token_prefix: str, batch_id: int) -> "Token":
        """Return the token of a batch's row of the ledger."""
        return cls(f"{_batch(pipeline_id, token_prefix, batch_id)}/ledger")

    @classmethod
    def of_replay_marks(cls, replay_topic: str, checkpoint_id: str, first: int, last: int) -> "Token":
        """Return the token of a block of replay marks; first, last: offsets in the replay topic."""
        return cls(f"{replay_topic}/{checkpoint_id}/{first}-{last}")

    def dead_letters(self) -> "Token":
        """Return the token of the block's records that were refused before they were sent."""
        return self._with("dead-letters")

    def dead_letters_of_server(self) -> "Token":
        """Return the token of the block's rows that the server refused."""
        return self._with("dead-letters/insert")

    def part(self, first: int, until: int) -> "Token":
        """Return the token of some rows of a block that the server refused as a whole: [first, until)."""
        return self._with(f"{first}-{until}")

    def divided(self, first: int, until: int) -> "Token":
        """Return the token of the note that rows of the block were refused together: [first, until)."""
        return self._with(f"divided/{first}-{until}")

    def settled(self, until: int) -> "Token":
        """Return the token of the note that all rows of the block before `until` are settled."""
        return self._with(f"settled/{until}")

    def again(self, attempt: int) -> "Token":
        """Return the token under which what is missing of the block is sent behind a restart of the server.

        attempt: 0 for the block's own, then one more for each that the server knows without having the rows.
        """
        return self._with(f"again-{attempt}") if attempt else self

    def empty(self) -> "Token":
        """Return the token of a block without rows, by which an error of the table is told from one of the rows."""
        return self._with("empty")

    def _with(self, name: str) -> "Token":
        return Token(f"{self.text}/{name}")

    def __str__(self) -> str:
        """Write the text, for messages."""
        return self.text


def _batch(pipeline_id: str, token_prefix: str, batch_id: int) -> str:
    return f"{pipeline_id}/{token_prefix}/{batch_id}"
