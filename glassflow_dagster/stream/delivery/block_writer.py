"""Inserts a block of which the server may refuse some rows: the good rows exactly once, the bad ones are returned.

The server refuses a block as a whole: it writes no row before it has parsed all of them (`insert.py` pins that). So a
refused block is split in halves, and these again, until each bad row is alone. Each part is an insert with a token of
its own: the block's token with the part's range of rows.

Whether a part is inserted or split must not change when the batch is repeated, or a part would be inserted after its
own halves: the server may refuse other rows by then. So a split is noted in ClickHouse (`glassflow_splits`) before the
first half is sent, and now and then up to which row a block is done; a repeated batch reads these notes first. A part
that was refused without a note has left no row, and may be sent again.

One case the notes do not cover: a part that is refused now may have been inserted by the batch's first run, before
somebody gave the table a new constraint. Then the writer stops with an error that says how to continue.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.sink import Delivery
from glassflow_dagster.stores.bookkeeping.splits import BatchName, RefusedRow, Split, SplitNote, insert_split_note
from glassflow_dagster.stores.clickhouse.errors import InsertRefused, RowsRefused, TooManyPartitions
from glassflow_dagster.stores.clickhouse.inserts.block import Block
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import fetch, retry
from glassflow_dagster.stores.clickhouse.tables.token_window import TOKENS_KEPT, keep_more_tokens
from glassflow_dagster.stream.delivery.token_room import TokenRoom

T = TypeVar("T")

# A refused part of up to so many rows is sent row by row: splitting it further would cost a note for each half.
ROWS_SENT_SINGLY = 16

# Inserted parts between two notes of how far a block is done; rows that are done are not sent again.
PARTS_PER_NOTE = 200

# Tokens of parts push tokens of whole blocks out of the table's deduplication window. This many parts of each task fit
# into the window beside a batch's blocks.
PARTS_BESIDE_BLOCKS = 100
# With more parts, the window is enlarged for the most that there can be: a batch has no more records than this, and so
# no more parts. A token takes some 100 bytes of the server's memory.
TOKENS_KEPT_FOR_PARTS = TOKENS_KEPT + 200_000


@dataclass(frozen=True)
class BlockWriter:
    """Writes a batch's blocks into one table.

    table_ddl: the table's columns and constraints when the batch was begun, see `read_table_ddl`.
    splits: the notes of earlier runs of the batch, by the block's token; None when this is its first run.
    delivery: with at_least_once the table's deduplication window is not enlarged, as it may have none.
    cluster: where tables are altered (ON CLUSTER).
    room: for the tokens of a task whose blocks are not limited beforehand; None where they are.
    """

    inserter: Inserter
    database: str
    table: str
    batch: BatchName
    table_ddl: str
    splits: Mapping[str, Split] | None
    delivery: Delivery = "exactly_once"
    cluster: str | None = None
    room: TokenRoom | None = None
    # Counts the parts that were inserted, from one, as `next` returns the number of the part that is counted.
    _parts: Iterator[int] = field(default_factory=lambda: count(1))

    def insert(self, block: Block, token: Token) -> tuple[RefusedRow, ...]:
        """Insert a block under its token; return the rows that the server refuses. All others are in the table once.

        A repeated batch continues with the notes that its earlier runs left on the block (`splits`). Raises
        `InsertRefused`, and what `Inserter.insert` raises, but for `RowsRefused` and `TooManyPartitions`.
        """
        split = (self.splits or {}).get(token.text, Split())
        return tuple(self._insert_parts(block, token, split))

    def _insert_parts(self, block: Block, token: Token, split: "Split") -> list[RefusedRow]:
        """Insert a block, splitting refused parts, in the order of the rows; return the rows that are refused alone.

        split: the notes of the batch's earlier runs about this block: the rows before `split.done_until` are done, with
        `split.refused` among them, and the parts in `split.split_parts` were split. Parts still to do are on a stack,
        the first one on top.
        """
        refused, done_until, inserted = list(split.refused), split.done_until, 0
        whole = _Part(first=0, until=block.num_rows, token=token)
        stack = [whole]
        while stack:
            part = stack.pop()
            # Done by an earlier run.
            if part.until <= done_until:
                continue
            if (part.first, part.until) not in split.split_parts:
                reason = self._send(block, part)
                if reason is None:
                    # The table's deduplication window has room for the tokens of whole blocks already.
                    if part != whole:
                        self._count_part()
                    inserted += 1
                    if inserted % PARTS_PER_NOTE == 0:
                        self._note_done(token, part.until, refused)
                    continue
                # A single row: it is the one that the server refuses.
                if part.until - part.first == 1:
                    refused.append(RefusedRow(part.first, reason))
                    continue
                self._note_split(token, part)
            stack.extend(reversed(list(_halves(part, token))))
        # So that a repetition returns the same rows, even if the server accepts them by then.
        if refused and done_until < block.num_rows:
            self._note_done(token, block.num_rows, refused)
        return refused

    def _send(self, block: Block, part: "_Part") -> str | None:
        """Insert a part of a block; return None when it is in the table, else the reason why it was refused.

        A part with rows for too many partitions of the table counts as refused, too. Raises `InsertRefused` where an
        earlier attempt may have inserted the part before the table was changed, and what `TokenRoom.reserve` raises.
        """
        if self.room:
            self.room.reserve()
        try:
            rows = block.slice(part.first, part.until - part.first)
            self.inserter.insert(self.database, self.table, rows, part.token)
        except TooManyPartitions as error:
            return str(error)
        except RowsRefused as error:
            if self.splits is not None or not error.none_inserted:
                self._require_unchanged(error)
            return error.reason
        return None

    def _count_part(self) -> None:
        """Count an inserted part; with the `PARTS_BESIDE_BLOCKS`th, enlarge the table's deduplication window.

        Not with at_least_once, where the table may have none, nor where there is room already.
        """
        if self.delivery == "exactly_once" and self.room is None and next(self._parts) == PARTS_BESIDE_BLOCKS:
            client = self.inserter.client
            table = (self.database, self.table)
            self._retry(lambda: keep_more_tokens(client, *table, TOKENS_KEPT_FOR_PARTS, self.cluster))

    def _require_unchanged(self, error: RowsRefused) -> None:
        """Raise `InsertRefused` if the table's columns or constraints were changed since the batch was begun.

        An unchanged table has refused the part in every earlier run, too, so none of its rows is in the table.
        """
        now = self._retry(lambda: read_table_ddl(self.inserter.client, self.database, self.table))
        if now != self.table_ddl:
            raise InsertRefused(
                f"{error}; its columns or constraints were changed while batch {self.batch.batch_id} was in flight, "
                "so these rows may be in the table already; undo the change, start the pipeline, and repeat the "
                "change after that batch"
            ) from error

    def _note_split(self, token: Token, part: "_Part") -> None:
        """Note in `glassflow_splits` that rows of the block were rejected together and are sent in smaller parts.

        A repeated batch reads the note and splits the block equally.

        part: the rows [first, until).
        token: the block's insert token, from which the note's own token is derived.
        """
        note = SplitNote(token.text, first=part.first, until=part.until, done=False)
        insert_split_note(self.inserter, self.batch, note, token.split(part.first, part.until))

    def _note_done(self, token: Token, until: int, refused: list[RefusedRow]) -> None:
        """Write the note that the block's rows before `until` are done, and which of them were refused."""
        note = SplitNote(token.text, first=0, until=until, done=True, refused=tuple(refused))
        insert_split_note(self.inserter, self.batch, note, token.done(until))

    def _retry(self, ask: Callable[[], T]) -> T:
        return retry(ask, self.inserter.retry_seconds, self.inserter.report)


@dataclass(frozen=True)
class WholeBlockWriter:
    """Writes blocks into a Distributed table, each as a whole or not at all.

    A refused block is not split: a shard that has already written its share would write it again with the parts, which
    have other tokens.
    room: as in `BlockWriter`.
    """

    inserter: Inserter
    database: str
    table: str
    room: TokenRoom | None = None

    def insert(self, block: Block, token: Token) -> tuple[RefusedRow, ...]:
        """Insert a block under its token; raise `InsertRefused` when the server refuses rows, so that none is returned.

        Also raises what `Inserter.insert` and `TokenRoom.reserve` raise.
        """
        if self.room:
            self.room.reserve()
        try:
            self.inserter.insert(self.database, self.table, block, token)
        except RowsRefused as error:
            raise InsertRefused(
                f"{error}; a block for a Distributed table is not split, since other shards may have their part of "
                "it; change the constraint or column that rejects them on every shard, then start the pipeline again"
            ) from error
        return ()


@dataclass(frozen=True)
class _Part:
    """A range of a block's rows, [first, until), and the insert token of the range."""

    first: int
    until: int
    token: Token


def read_table_ddl(client: Client, database: str, table: str) -> str:
    """Return the part of a table's DDL that decides which rows it accepts: its columns and constraints.

    That is the CREATE query without the engine clause; an empty string where there is no table.
    """
    rows = fetch(
        client,
        "SELECT create_table_query, engine_full FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String}",
        {"database": database, "name": table},
    )
    if not rows:
        return ""
    query, engine = rows[0]
    return str(query).partition(f" ENGINE = {engine}")[0]


def _halves(part: _Part, token: Token) -> Iterator[_Part]:
    """Split a part in two halves, or a small one into its rows; yield these parts. token: the block's."""
    first, until = part.first, part.until
    ends = range(first + 1, until + 1) if until - first <= ROWS_SENT_SINGLY else ((first + until) // 2, until)
    for end in ends:
        yield _Part(first, end, token.part(first, end))
        first = end
