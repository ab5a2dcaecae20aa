"""A block that the server refuses for some of its rows: the good ones go in exactly once, the others are named.

A block is refused as a whole: the server puts none of it in place before all of it is made (`insert.py` pins that). So
it is halved until the rows at fault stand alone. Each half is a request with a token of its own: the block's, and from
which row to which. Whether a part is sent or taken apart must
not change when the batch is repeated, or a part would follow its own halves into the table: the server may refuse other
rows by then. So a refusal is written down (`glassflow_splits`) before the first half goes out, and how far a block is
settled now and then; a repeated batch reads that first. What was refused without a note went nowhere, and may be tried
again.

One thing no note can tell: whether a block that is refused now was taken by the batch's first run, before somebody
gave the table a new constraint. Then it stops, and says how to go on.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.splits import BatchName, RefusedRow, Split, SplitNote, insert_split_note
from glassflow_dagster.clickhouse.errors import InsertRefused, RowsRefused, TooManyPartitions
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import fetch, retry
from glassflow_dagster.clickhouse.target.token_window import TOKENS_KEPT, keep_more_tokens
from glassflow_dagster.config.model.sink import Delivery

T = TypeVar("T")

# Rows that are sent one by one when they were refused together: halving on would cost a note for each half.
ROWS_SENT_SINGLY = 16

# Parts taken between two notes of how far a block is settled; what is settled is not sent again.
PARTS_PER_NOTE = 200

# Parts push the tokens of whole blocks out of the table's memory. So many of each task fit beside a batch's blocks.
PARTS_BESIDE_BLOCKS = 100
# With more it must remember as many as there can be: no batch has more records than these, nor more parts. A token
# costs the server some 100 bytes.
TOKENS_KEPT_FOR_PARTS = TOKENS_KEPT + 200_000


@dataclass(frozen=True)
class BlockWriter:
    """Writes a batch's blocks into one table.

    `definition` is the table's columns and constraints when the batch was begun. `splits` has what earlier runs of the
    batch wrote down, by block; None when this is its first run. With `delivery` at_least_once the table's window is
    left as it is: it may have none. `cluster` is where tables are altered.
    """

    inserter: Inserter
    database: str
    table: str
    batch: BatchName
    definition: str
    splits: Mapping[str, Split] | None
    delivery: Delivery = "exactly_once"
    cluster: str | None = None
    _taken: Iterator[int] = field(default_factory=lambda: count(1))

    def insert(self, block: pa.Table, token: Token) -> tuple[RefusedRow, ...]:
        """Insert a block under its token; gives the rows that the server refuses, all others are in the table once.

        Raises what `Inserter.insert` raises, but for `RowsRefused` and `TooManyPartitions`.
        """
        split = (self.splits or {}).get(token.text, Split())
        return tuple(self._insert_parts(block, token, split))

    def _insert_parts(self, block: pa.Table, token: Token, split: "Split") -> list[RefusedRow]:
        """Send a block, and halves of what is refused, in their order; gives the rows that are refused alone."""
        refused, settled, sent = list(split.refused), split.done_until, 0
        whole = _Part(0, block.num_rows, token)
        waiting = [whole]
        while waiting:
            part = waiting.pop()
            if part.until <= settled:
                continue
            if (part.first, part.until) not in split.split_parts:
                reason = self._send(block, part)
                if reason is None:
                    if part != whole:
                        self._take_part()
                    sent += 1
                    if sent % PARTS_PER_NOTE == 0:
                        self._note_settled(token, part.until, refused)
                    continue
                if part.until - part.first == 1:
                    refused.append(RefusedRow(part.first, reason))
                    continue
                self._note_divided(token, part)
            waiting.extend(reversed(list(_halves(part, token))))
        if refused and settled < block.num_rows:
            self._note_settled(token, block.num_rows, refused)
        return refused

    def _send(self, block: pa.Table, part: "_Part") -> str | None:
        """Send a part; gives the reason why it was refused, None when it is in the table."""
        try:
            rows = block.slice(part.first, part.until - part.first)
            self.inserter.insert(self.database, self.table, rows, part.token)
        except TooManyPartitions as error:
            return str(error)
        except RowsRefused as error:
            if self.splits is not None or not error.certain:
                self._require_unchanged(error)
            return error.reason
        return None

    def _take_part(self) -> None:
        if self.delivery == "exactly_once" and next(self._taken) == PARTS_BESIDE_BLOCKS:
            client = self.inserter.client
            place = (self.database, self.table)
            self._retry(lambda: keep_more_tokens(client, *place, TOKENS_KEPT_FOR_PARTS, self.cluster))

    def _require_unchanged(self, error: RowsRefused) -> None:
        """A table that is as it was would have refused the part at any time before; of another one nobody knows."""
        now = self._retry(lambda: read_definition(self.inserter.client, self.database, self.table))
        if now != self.definition:
            raise InsertRefused(
                f"{error}; its columns or constraints were changed while batch {self.batch.batch_id} was under way, so "
                "these rows may be in it already; take the change back, start the pipeline, and make the change again "
                "after that batch"
            ) from error

    def _note_divided(self, token: Token, part: "_Part") -> None:
        note = SplitNote(token.text, part.first, part.until, done=False)
        insert_split_note(self.inserter, self.batch, note, token.split(part.first, part.until))

    def _note_settled(self, token: Token, until: int, refused: list[RefusedRow]) -> None:
        note = SplitNote(token.text, 0, until, done=True, refused=tuple(refused))
        insert_split_note(self.inserter, self.batch, note, token.done(until))

    def _retry(self, ask: Callable[[], T]) -> T:
        return retry(ask, self.inserter.retry_seconds, self.inserter.report)


@dataclass(frozen=True)
class WholeBlockWriter:
    """Writes blocks into a Distributed table, each as a whole or not at all.

    A block is never taken apart there: a shard that has its piece would take it again as a part, under another token.
    """

    inserter: Inserter
    database: str
    table: str

    def insert(self, block: pa.Table, token: Token) -> tuple[RefusedRow, ...]:
        """Insert a block under its token; raises as `Inserter.insert`, and `InsertRefused` for refused rows."""
        try:
            self.inserter.insert(self.database, self.table, block, token)
        except RowsRefused as error:
            raise InsertRefused(
                f"{error}; a block for a Distributed table is not taken apart, since other shards may have their part "
                "of it; change the constraint or column that refuses them on every shard and start the pipeline again"
            ) from error
        return ()


@dataclass(frozen=True)
class _Part:
    """Rows of a block, and the token they are sent under."""

    first: int
    until: int
    token: Token


def read_definition(client: Client, database: str, table: str) -> str:
    """Give a table's columns and constraints as the server writes them: they decide which rows it takes."""
    found = fetch(
        client,
        "SELECT create_table_query, engine_full FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String}",
        {"database": database, "name": table},
    )
    if not found:
        return ""
    query, engine = found[0]
    return str(query).partition(f" ENGINE = {engine}")[0]


def _halves(part: _Part, token: Token) -> Iterator[_Part]:
    """Cut a part in two, or a small one into its rows; token: the block's."""
    first, until = part.first, part.until
    ends = range(first + 1, until + 1) if until - first <= ROWS_SENT_SINGLY else ((first + until) // 2, until)
    for end in ends:
        yield _Part(first, end, token.part(first, end))
        first = end
