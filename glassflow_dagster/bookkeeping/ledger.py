"""The ledger: what each batch read, and what became of every record of it.

A row is written before the batch commits, under a token of its own, so a replayed batch has one row. What is read
back is summed by the server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.schema import (
    BATCH,
    BATCH_TIME,
    KEPT_FOR_EVER,
    NEVER,
    WRITE_EVERYWHERE,
    BookkeepingTable,
    Column,
)
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import fetch


@dataclass
class Outcomes:
    """What became of records; each is counted from the records themselves.

    Of a join: `taken` are the events that came to it in time, of which the right ones are `accepted` and the left ones
    `matched`, `unmatched` or `waiting`, which is a level and no flow: as many as wait at the end. `null_keys` are those
    of them whose key matches nothing. `joined` are the rows that it gave, of which `joined_filtered` and
    `joined_dead_letters` did not reach the table; `filtered` and `dead_letters` count them, too.
    """

    read: int = 0
    written: int = 0
    duplicates: int = 0
    filtered: int = 0
    late: int = 0
    unmatched: int = 0
    matched: int = 0
    waiting: int = 0
    dead_letters: int = 0
    taken: int = 0
    accepted: int = 0
    null_keys: int = 0
    joined: int = 0
    joined_filtered: int = 0
    joined_dead_letters: int = 0


@dataclass(frozen=True)
class LedgerRow:
    """One batch.

    `offsets` gives topic -> partition -> what was read of it, from the first up to, not including, the second.
    `rows_before` is the target's row count before the checkpoint's first batch, the same in all of its rows.
    """

    pipeline_id: str
    checkpoint_id: str
    batch_id: int
    batch_time_ms: int
    definition: str
    offsets: Mapping[str, Mapping[int, tuple[int, int]]]
    rows_before: int
    outcomes: Outcomes
    blocks: int
    bytes: int
    dead_letters_expire_at: int = NEVER


@dataclass(frozen=True)
class LedgerSums:
    """What all batches of one checkpoint became, up to `last_batch`, which is -1 when it has none.

    Times are in milliseconds since 1970.
    """

    checkpoint_id: str
    batches: int = 0
    last_batch: int = -1
    first_time_ms: int = 0
    last_time_ms: int = 0
    rows_before: int = 0
    outcomes: Outcomes = field(default_factory=Outcomes)


_OUTCOMES = tuple(found.name for found in fields(Outcomes))

# `offsets` holds what the batch read: [from, until) of each partition.
LEDGER = BookkeepingTable(
    "glassflow_ledger",
    (
        *BATCH,
        BATCH_TIME,
        Column("definition", "String"),
        Column("offsets", "Array(Tuple(topic String, partition UInt32, `from` UInt64, until UInt64))"),
        Column("rows_before", "UInt64"),
        *(Column(name, "UInt64") for name in _OUTCOMES),
        Column("dead_letters_expire_at", "DateTime('UTC')", KEPT_FOR_EVER),
        Column("blocks", "UInt32"),
        Column("bytes", "UInt64"),
    ),
    order_by="(pipeline_id, checkpoint_id, batch_id)",
    settings=WRITE_EVERYWHERE,
)

_SCHEMA = LEDGER.schema
# Waiting is a level and not a flow: the last batch's word counts.
_SUMS = ", ".join("argMax(waiting, batch_id)" if name == "waiting" else f"sum({name})" for name in _OUTCOMES)


def insert_ledger_row(inserter: Inserter, database: str, row: LedgerRow, token: Token) -> None:
    """Write a batch's row under its token; raises what `Inserter.insert` raises."""
    LEDGER.insert(inserter, database, _block(row), token)


def newest_checkpoint(client: Client, database: str, pipeline_id: str) -> str:
    """Read which checkpoint of a pipeline wrote last; zeroes when none has a batch yet.

    An older one's records were read anew by it.
    """
    return str(fetch(client, newest_checkpoint_query(database), {"pipeline": pipeline_id})[0][0])


def newest_checkpoint_query(database: str) -> str:
    """Write the query for a pipeline's newest checkpoint; its parameter is `pipeline`."""
    return (
        f"SELECT argMax(checkpoint_id, batch_time) FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String}"
    )


def add_later(client: Client, database: str, pipeline_id: str, sums: LedgerSums) -> LedgerSums:
    """Add the batches of the same checkpoint that came since; only these are read, by the ledger's primary key."""
    row = fetch(
        client,
        "SELECT count(), max(batch_id), toUnixTimestamp64Milli(min(batch_time)), "
        f"toUnixTimestamp64Milli(max(batch_time)), argMin(rows_before, batch_time), {_SUMS} "
        f"FROM {LEDGER.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        "AND checkpoint_id = {checkpoint_id:UUID} AND batch_id >= {first:UInt64}",
        {"pipeline": pipeline_id, "checkpoint_id": sums.checkpoint_id, "first": sums.last_batch + 1},
    )[0]
    batches, last_batch, first, last, rows_before, *counted = row
    if not batches:
        return sums
    later = LedgerSums(
        checkpoint_id=sums.checkpoint_id,
        batches=batches,
        last_batch=last_batch,
        first_time_ms=first,
        last_time_ms=last,
        rows_before=rows_before,
        outcomes=Outcomes(**dict(zip(_OUTCOMES, counted, strict=True))),
    )
    return _added(sums, later) if sums.batches else later


def read_outcomes(client: Client, database: str, pipeline_id: str, checkpoint_id: str, before_batch: int) -> Outcomes:
    """Sum what one checkpoint's batches before a batch id became; the tables must exist."""
    row = fetch(
        client,
        f"SELECT {_SUMS} FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} AND batch_id < {before:UInt64}",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "before": before_batch},
    )[0]
    return Outcomes(**dict(zip(_OUTCOMES, row, strict=True)))


def read_written(client: Client, database: str, pipeline_id: str, after_ms: int, until_ms: int) -> int:
    """Sum the rows that batches of the newest checkpoint wrote whose time is in (after_ms, until_ms].

    Times are in milliseconds since 1970. Of that checkpoint only: another one does not know the keys of the one before.
    """
    found = fetch(
        client,
        f"SELECT sum(written) FROM {LEDGER.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        "AND toUnixTimestamp64Milli(batch_time) > {after:Int64} AND toUnixTimestamp64Milli(batch_time) <= {last:Int64} "
        f"AND checkpoint_id = ({newest_checkpoint_query(database)})",
        {"pipeline": pipeline_id, "after": after_ms, "last": until_ms},
    )
    return int(found[0][0])


def read_decided(client: Client, database: str, pipeline_id: str, recent: timedelta) -> tuple[int, int, int]:
    """Sum the left events of the newest checkpoint that were matched, and those that were not, within `recent`.

    The third number is how many wait now.
    """
    is_recent = f"batch_time >= now() - {round(recent.total_seconds())}"
    matched, unmatched, waiting = fetch(
        client,
        f"SELECT sumIf(matched, {is_recent}), sumIf(unmatched, {is_recent}), argMax(waiting, batch_id) "
        f"FROM {LEDGER.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        f"AND checkpoint_id = ({newest_checkpoint_query(database)})",
        {"pipeline": pipeline_id},
    )[0]
    return matched, unmatched, waiting


def last_batch(client: Client, database: str, pipeline_id: str, checkpoint_id: str) -> int | None:
    """Return the newest batch that the ledger has of a checkpoint; the tables must exist."""
    # In the order of the primary key, so that the end of it is read and not all of it.
    found = fetch(
        client,
        f"SELECT batch_id FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} "
        "ORDER BY pipeline_id DESC, checkpoint_id DESC, batch_id DESC LIMIT 1",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id},
    )
    return int(found[0][0]) if found else None


def read_offsets(
    client: Client, database: str, pipeline_id: str, checkpoint_id: str, from_batch: int
) -> dict[int, dict[str, dict[int, tuple[int, int]]]]:
    """Give what the batches from a batch id on have read: batch -> topic -> partition -> (from, until)."""
    found = fetch(
        client,
        "SELECT batch_id, o.1, o.2, o.3, o.4 "
        f"FROM {LEDGER.full_name(database)} ARRAY JOIN offsets AS o "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} AND batch_id >= {batch:UInt64}",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "batch": from_batch},
    )
    batches: dict[int, dict[str, dict[int, tuple[int, int]]]] = {}
    for batch_id, topic, partition, first, until in found:
        batches.setdefault(batch_id, {}).setdefault(topic, {})[partition] = (first, until)
    return batches


@dataclass(frozen=True)
class BatchRange:
    """What one batch read of one partition: [first, until), and the batch's time in milliseconds since 1970."""

    batch_id: int
    batch_time_ms: int
    topic: str
    partition: int
    first: int
    until: int


@dataclass(frozen=True)
class BatchEntry:
    """What the ledger says of one batch: its time in milliseconds since 1970, the digest of its definition."""

    batch_id: int
    batch_time_ms: int
    definition: str
    duplicates: int
    ranges: tuple[BatchRange, ...]


@dataclass(frozen=True)
class BatchHistory:
    """All batches of a pipeline's newest checkpoint, in their order."""

    checkpoint_id: str
    batches: tuple[BatchEntry, ...]

    @property
    def last_batch(self) -> int | None:
        """The newest batch; None before the first."""
        return self.batches[-1].batch_id if self.batches else None

    @property
    def definitions(self) -> frozenset[str]:
        """The digests of the definitions that batches went by."""
        return frozenset(batch.definition for batch in self.batches)

    @property
    def ranges(self) -> tuple[BatchRange, ...]:
        """What all batches read."""
        return tuple(found for batch in self.batches for found in batch.ranges)


def read_history(client: Client, database: str, pipeline_id: str) -> BatchHistory:
    """Read every batch of a pipeline's newest checkpoint; the tables must exist."""
    checkpoint_id = newest_checkpoint(client, database, pipeline_id)
    where = "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID}"
    rows = fetch(
        client,
        "SELECT batch_id, toUnixTimestamp64Milli(batch_time), definition, duplicates, offsets "
        f"FROM {LEDGER.full_name(database)} {where} ORDER BY batch_id",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id},
    )
    return BatchHistory(checkpoint_id, tuple(_entry(*row) for row in rows))


def _added(sums: LedgerSums, later: LedgerSums) -> LedgerSums:
    """Add sums of later batches; waiting is a level and not a flow: the later word counts."""
    counted = {name: getattr(sums.outcomes, name) + getattr(later.outcomes, name) for name in _OUTCOMES}
    return replace(
        later,
        batches=sums.batches + later.batches,
        first_time_ms=sums.first_time_ms,
        rows_before=sums.rows_before,
        outcomes=Outcomes(**counted | {"waiting": later.outcomes.waiting}),
    )


def _entry(
    batch_id: int, time_ms: int, definition: str, duplicates: int, offsets: Sequence[Mapping[str, Any]]
) -> BatchEntry:
    ranges = (BatchRange(batch_id, time_ms, o["topic"], o["partition"], o["from"], o["until"]) for o in offsets)
    return BatchEntry(batch_id, time_ms, definition, duplicates, tuple(ranges))


def _block(row: LedgerRow) -> pa.Table:
    offsets = [
        {"topic": topic, "partition": partition, "from": first, "until": until}
        for topic, partitions in sorted(row.offsets.items())
        for partition, (first, until) in sorted(partitions.items())
    ]
    counted = {name: getattr(row.outcomes, name) for name in _OUTCOMES}
    others = {f.name: getattr(row, f.name) for f in fields(row) if f.name in _SCHEMA.names}
    values = {**others, **counted, "batch_time": row.batch_time_ms, "offsets": offsets}
    return pa.Table.from_pylist([values], schema=_SCHEMA)
