"""Insert tokens: ClickHouse drops a block whose `insert_deduplication_token` it knows.

A repeated batch uses the same tokens for the same blocks, and nothing else uses them: a token contains the pipeline,
checkpoint and batch, and the position in Kafka of the block's first record, which is in one block of its batch only.
Parts of a block, dead letters and notes have tokens that begin with the block's. The texts must never change: a driver
may repeat a batch that an earlier version began.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """The insert token of one block; its methods return the tokens of inserts that derive from that block."""

    text: str

    @classmethod
    def of_block(cls, pipeline_id: str, token_prefix: str, batch_id: int, position: Iterable[int]) -> "Token":
        """Return the token of a block of rows.

        token_prefix: identifies the checkpoint.
        position: numbers that identify the block's first record within the batch.
        """
        return cls("/".join([_batch(pipeline_id, token_prefix, batch_id), *map(str, position)]))

    @classmethod
    def of_ledger_row(cls, pipeline_id: str, token_prefix: str, batch_id: int) -> "Token":
        """Return the token of a batch's ledger row."""
        return cls(f"{_batch(pipeline_id, token_prefix, batch_id)}/ledger")

    @classmethod
    def of_replay_marks(cls, replay_topic: str, topic_id: str, checkpoint_id: str, first: int, last: int) -> "Token":
        """Return the token of a block of replay marks; first, last: offsets in the replay topic with this id."""
        return cls(f"{replay_topic}/{topic_id}/{checkpoint_id}/{first}-{last}")

    def to_table(self, name: str) -> "Token":
        """Return the token of the block's rows for a further table, of a sink with several. name: database.table."""
        return self._with(f"to/{name}")

    def dead_letters(self) -> "Token":
        """Return the token of the block's dead letters that failed before the insert."""
        return self._with("dead-letters")

    def dead_letters_of_server(self) -> "Token":
        """Return the token of the block's dead letters that ClickHouse rejected."""
        return self._with("dead-letters/insert")

    def part(self, first: int, until: int) -> "Token":
        """Return the token of the rows [first, until) of a block that ClickHouse rejected as a whole."""
        return self._with(f"{first}-{until}")

    def split(self, first: int, until: int) -> "Token":
        """Return the token of the note that the rows [first, until) were rejected together and are split."""
        return self._with(f"split/{first}-{until}")

    def done(self, until: int) -> "Token":
        """Return the token of the note that all rows of the block before `until` are done."""
        return self._with(f"done/{until}")

    def again(self, run: str) -> "Token":
        """Return the token under which rows are sent whose own token the server knows without having them.

        run: identifies the server's run. Within one run a token is reliable, so that only rows of this one have it.
        """
        return self._with(f"again-{run}")

    def empty(self) -> "Token":
        """Return the token of an empty block, whose insert shows whether the table or the rows cause an error."""
        return self._with("empty")

    def _with(self, name: str) -> "Token":
        return Token(f"{self.text}/{name}")

    def __str__(self) -> str:
        """Return the text."""
        return self.text


def _batch(pipeline_id: str, token_prefix: str, batch_id: int) -> str:
    return f"{pipeline_id}/{token_prefix}/{batch_id}"
