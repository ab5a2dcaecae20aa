"""The ledger: one row for each micro-batch, with the offset ranges it read and what became of its records.

The row is inserted before Spark commits the batch, under an insert token, so a repeated batch has one row. Sums over
batches are computed by ClickHouse.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes, sum_of
from glassflow_dagster.stores.bookkeeping.schema import (
    BATCH,
    BATCH_TIME,
    KEPT_FOR_EVER,
    NEVER,
    WRITE_EVERYWHERE,
    BookkeepingTable,
    Column,
)
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import fetch


@dataclass(frozen=True)
class LedgerRow:
    """The ledger row of one batch.

    offsets: topic -> partition -> offset range [first, until) that the batch read.
    rows_before: the target's row count before the checkpoint's first batch, the same in all rows of a checkpoint.
    definition: the pipeline definition's digest.
    dead_letters_expire_at: seconds since 1970.
    written_by_table, rows_before_by_table: of a sink with several tables, all of them: database.table -> the rows that
        the batch wrote, and the table's rows before the pipeline first wrote to it.
    The last two are of a join on the event clock: the newest event time of each source in the batch, microseconds since
    1970, None for a source without an event.
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
    written_by_table: Mapping[str, int] = field(default_factory=dict)
    rows_before_by_table: Mapping[str, int] = field(default_factory=dict)
    left_max_event_time: int | None = None
    right_max_event_time: int | None = None


# Stands for the sink's own table in batches of a sink that had no other.
_OWN_TABLE = ""


@dataclass(frozen=True)
class TableRows:
    """The rows that a checkpoint's batches wrote to a table, and its rows before the first of them.

    before: None for a table that no batch could write to yet.
    """

    written: int
    before: int | None

    def expected(self, rows: int) -> int:
        """Return the number of rows that the table should have. rows: the number that it has."""
        return rows if self.before is None else self.before + self.written


@dataclass(frozen=True)
class RowsByTable:
    """The rows that a checkpoint's batches wrote to each of the sink's tables, and the tables' rows before.

    Both: database.table -> rows, and `_OWN_TABLE` of the batches in which the sink had no other table.
    """

    written: Mapping[str, int] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)

    def of(self, table: str, *, own: bool) -> TableRows:
        """Return the rows of a table, `database.table`. own: it is the sink's own table, and not that of a route."""
        before = self.before.get(table, self.before.get(_OWN_TABLE) if own else None)
        return TableRows(self.written.get(table, 0) + (self.written.get(_OWN_TABLE, 0) if own else 0), before)

    @property
    def named_before(self) -> dict[str, int]:
        """The rows before, of the tables of batches in which the sink had several."""
        return {table: rows for table, rows in self.before.items() if table != _OWN_TABLE}

    @property
    def named_written(self) -> dict[str, int]:
        """The written rows, of the tables of batches in which the sink had several."""
        return {table: rows for table, rows in self.written.items() if table != _OWN_TABLE}

    def __add__(self, later: "RowsByTable") -> "RowsByTable":
        """Add the rows of later batches."""
        return RowsByTable(Counter(self.written) + Counter(later.written), {**self.before, **later.before})


@dataclass(frozen=True)
class LedgerSums:
    """The sums over a checkpoint's batches up to `last_batch`, which is -1 when there is no batch.

    The times are those of the first and last batch, in milliseconds since 1970.
    """

    checkpoint_id: str
    batches: int = 0
    last_batch: int = -1
    first_time_ms: int = 0
    last_time_ms: int = 0
    rows_before: int = 0
    outcomes: Outcomes = field(default_factory=Outcomes)
    by_table: RowsByTable = field(default_factory=RowsByTable)


_OUTCOMES = tuple(outcome.name for outcome in fields(Outcomes))

# `offsets` holds the offset range [from, until) of each partition that the batch read.
LEDGER = BookkeepingTable(
    "glassflow_ledger",
    (
        *BATCH,
        BATCH_TIME,
        Column("definition", "String"),
        Column("offsets", "Array(Tuple(topic String, partition UInt32, `from` UInt64, until UInt64))"),
        Column("rows_before", "UInt64"),
        # Of batches before this column was there, each record was one event.
        *(Column(name, "UInt64", "read" if name == "records" else "") for name in _OUTCOMES),
        Column("dead_letters_expire_at", "DateTime('UTC')", KEPT_FOR_EVER),
        Column("blocks", "UInt32"),
        Column("bytes", "UInt64"),
        Column("written_by_table", "Map(String, UInt64)"),
        Column("rows_before_by_table", "Map(String, UInt64)"),
        # No DateTime64: an event can be older than the times which that holds.
        Column("left_max_event_time", "Nullable(Int64)"),
        Column("right_max_event_time", "Nullable(Int64)"),
    ),
    order_by="(pipeline_id, checkpoint_id, batch_id)",
    settings=WRITE_EVERYWHERE,
)

_SCHEMA = LEDGER.schema
_WRITTEN_BY_TABLE = f"if(empty(written_by_table), map({_OWN_TABLE!r}, written), written_by_table)"
_ROWS_BEFORE_BY_TABLE = f"if(empty(rows_before_by_table), map({_OWN_TABLE!r}, rows_before), rows_before_by_table)"
# `waiting` is a gauge: its value is that of the last batch. All other outcomes are counters.
_SUMS = ", ".join("argMax(waiting, batch_id)" if name == "waiting" else f"sum({name})" for name in _OUTCOMES)


def insert_ledger_row(inserter: Inserter, database: str, row: LedgerRow, token: Token) -> None:
    """Insert a batch's ledger row under its insert token; raises what `Inserter.insert` raises."""
    LEDGER.insert(inserter, database, _block(row), token)


def newest_checkpoint(client: Client, database: str, pipeline_id: str) -> str:
    """Return the id of the pipeline's checkpoint with the newest batch; the all-zero UUID when there is no batch.

    The records of older checkpoints were read again by it.
    """
    return str(fetch(client, newest_checkpoint_query(database), {"pipeline": pipeline_id})[0][0])


def newest_checkpoint_query(database: str) -> str:
    """Return the SELECT of the id of a pipeline's newest checkpoint. Query parameter: `pipeline`."""
    return (
        f"SELECT argMax(checkpoint_id, batch_time) FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String}"
    )


def batches_with_dead_letters_query(database: str) -> str:
    """Return the SELECT of (checkpoint_id, batch_time) of a pipeline's batches with dead letters.

    Query parameter: `pipeline`.
    """
    return (
        f"SELECT checkpoint_id, batch_time FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND dead_letters > 0"
    )


def add_later_batches(client: Client, database: str, pipeline_id: str, sums: LedgerSums) -> LedgerSums:
    """Return the sums plus the checkpoint's batches after `sums.last_batch`; the same sums when there are none.

    Only the later batches are read, by the ledger's primary key.
    """
    row = fetch(
        client,
        "SELECT count(), max(batch_id), toUnixTimestamp64Milli(min(batch_time)), "
        f"toUnixTimestamp64Milli(max(batch_time)), argMin(rows_before, batch_time), sumMap({_WRITTEN_BY_TABLE}), "
        f"maxMap({_ROWS_BEFORE_BY_TABLE}), {_SUMS} "
        f"FROM {LEDGER.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        "AND checkpoint_id = {checkpoint_id:UUID} AND batch_id >= {first:UInt64}",
        {"pipeline": pipeline_id, "checkpoint_id": sums.checkpoint_id, "first": sums.last_batch + 1},
    )[0]
    batches, last_batch, first_time_ms, last_time_ms, rows_before, written, before, *outcome_sums = row
    if not batches:
        return sums
    later = LedgerSums(
        checkpoint_id=sums.checkpoint_id,
        batches=batches,
        last_batch=last_batch,
        first_time_ms=first_time_ms,
        last_time_ms=last_time_ms,
        rows_before=rows_before,
        outcomes=Outcomes(**dict(zip(_OUTCOMES, outcome_sums, strict=True))),
        by_table=RowsByTable(written, before),
    )
    return _sum_of(sums, later) if sums.batches else later


def read_outcomes(client: Client, database: str, pipeline_id: str, checkpoint_id: str, before_batch: int) -> Outcomes:
    """Return the summed outcomes of a checkpoint's batches with ids below `before_batch`; the tables must exist."""
    row = fetch(
        client,
        f"SELECT {_SUMS} FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} AND batch_id < {before:UInt64}",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "before": before_batch},
    )[0]
    return Outcomes(**dict(zip(_OUTCOMES, row, strict=True)))


def read_max_event_times(
    client: Client, database: str, pipeline_id: str, checkpoint_id: str, batches: range
) -> tuple[int | None, int | None]:
    """Return the newest event time of a join's left and right source in a checkpoint's batches; the tables must exist.

    batches: their ids. In microseconds since 1970; None for a source that has had no event.
    """
    row = fetch(
        client,
        f"SELECT max(left_max_event_time), max(right_max_event_time) FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} "
        "AND batch_id >= {first:UInt64} AND batch_id < {until:UInt64}",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "first": batches.start, "until": batches.stop},
    )[0]
    return row[0], row[1]


# The times of batches that read events are told to this precision: a join may have had a million of them.
_ARRIVAL_SECONDS = 10


def read_arrivals(client: Client, database: str, pipeline_id: str, checkpoint_id: str, after: float) -> list[float]:
    """Return when a checkpoint's batches have read events: the first and the last batch of each ten seconds.

    after: only batches behind this time. Times are seconds since 1970.
    """
    rows = fetch(
        client,
        "SELECT toUnixTimestamp64Milli(min(batch_time)), toUnixTimestamp64Milli(max(batch_time)) "
        f"FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} "
        "AND read > 0 AND toUnixTimestamp64Milli(batch_time) > {after:Int64} "
        f"GROUP BY intDiv(toUnixTimestamp64Milli(batch_time), {_ARRIVAL_SECONDS * 1000})",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "after": int(after * 1000)},
    )
    return [milliseconds / 1000 for row in rows for milliseconds in row]


def read_rows_written(client: Client, database: str, pipeline_id: str, after_ms: int, until_ms: int) -> RowsByTable:
    """Return the rows that the newest checkpoint's batches with a batch time in (after_ms, until_ms] wrote, by table.

    Times are in milliseconds since 1970. Older checkpoints are left out: a checkpoint does not know the deduplication
    keys of another one.
    """
    rows = fetch(
        client,
        f"SELECT sumMap({_WRITTEN_BY_TABLE}) FROM {LEDGER.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        "AND toUnixTimestamp64Milli(batch_time) > {after:Int64} AND toUnixTimestamp64Milli(batch_time) <= {last:Int64} "
        f"AND checkpoint_id = ({newest_checkpoint_query(database)})",
        {"pipeline": pipeline_id, "after": after_ms, "last": until_ms},
    )
    return RowsByTable(written=rows[0][0])


def read_rows_by_minute(
    client: Client, database: str, pipeline_id: str, checkpoint_id: str, after_ms: int
) -> dict[int, int]:
    """Return the rows that a checkpoint's batches after a time wrote: minute since 1970 -> rows; the tables must exist.

    after_ms: milliseconds since 1970.
    """
    rows = fetch(
        client,
        "SELECT intDiv(toUnixTimestamp64Milli(batch_time), 60000) AS minute, sum(written) "
        f"FROM {LEDGER.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        "AND checkpoint_id = {checkpoint_id:UUID} AND toUnixTimestamp64Milli(batch_time) > {after:Int64} "
        "GROUP BY minute",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "after": after_ms},
    )
    return {int(minute): int(written) for minute, written in rows}


def read_match_counts(client: Client, database: str, pipeline_id: str, recent: timedelta) -> tuple[int, int, int]:
    """Return how many left events of the newest checkpoint were matched, how many unmatched, and how many wait now.

    The first two count the batches within `recent` before now; the third is the last batch's gauge.
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
    """Return the greatest batch id that the ledger has of a checkpoint, None for no batch; the tables must exist."""
    # Ordered by the primary key, so that ClickHouse reads only the end of the range.
    rows = fetch(
        client,
        f"SELECT batch_id FROM {LEDGER.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} "
        "ORDER BY pipeline_id DESC, checkpoint_id DESC, batch_id DESC LIMIT 1",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id},
    )
    return int(rows[0][0]) if rows else None


def read_offsets(
    client: Client, database: str, pipeline_id: str, checkpoint_id: str, from_batch: int
) -> dict[int, dict[str, dict[int, tuple[int, int]]]]:
    """Return the offset ranges of the batches from `from_batch` on: batch id -> topic -> partition -> (from, until)."""
    rows = fetch(
        client,
        "SELECT batch_id, o.1, o.2, o.3, o.4 "
        f"FROM {LEDGER.full_name(database)} ARRAY JOIN offsets AS o "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} AND batch_id >= {batch:UInt64}",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "batch": from_batch},
    )
    batches: dict[int, dict[str, dict[int, tuple[int, int]]]] = {}
    for batch_id, topic, partition, first, until in rows:
        batches.setdefault(batch_id, {}).setdefault(topic, {})[partition] = (first, until)
    return batches


@dataclass(frozen=True)
class BatchRange:
    """The offset range [first, until) of one partition that a batch read; `batch_time_ms` is since 1970."""

    batch_id: int
    batch_time_ms: int
    topic: str
    partition: int
    first: int
    until: int


@dataclass(frozen=True)
class BatchEntry:
    """One batch as the ledger has it: its time in milliseconds since 1970, the digest of the definition it ran with."""

    batch_id: int
    batch_time_ms: int
    definition: str
    duplicates: int
    ranges: tuple[BatchRange, ...]


@dataclass(frozen=True)
class BatchHistory:
    """All batches of a pipeline's newest checkpoint, ordered by batch id."""

    checkpoint_id: str
    batches: tuple[BatchEntry, ...]

    @property
    def last_batch(self) -> int | None:
        """The greatest batch id; None before the first batch."""
        return self.batches[-1].batch_id if self.batches else None

    @property
    def definitions(self) -> frozenset[str]:
        """The digests of the pipeline definitions that the batches ran with."""
        return frozenset(batch.definition for batch in self.batches)

    @property
    def ranges(self) -> tuple[BatchRange, ...]:
        """The offset ranges of all batches."""
        return tuple(batch_range for batch in self.batches for batch_range in batch.ranges)


def read_history(client: Client, database: str, pipeline_id: str) -> BatchHistory:
    """Return every batch of a pipeline's newest checkpoint; the tables must exist."""
    checkpoint_id = newest_checkpoint(client, database, pipeline_id)
    where = "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID}"
    rows = fetch(
        client,
        "SELECT batch_id, toUnixTimestamp64Milli(batch_time), definition, duplicates, offsets "
        f"FROM {LEDGER.full_name(database)} {where} ORDER BY batch_id",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id},
    )
    return BatchHistory(checkpoint_id, batches=tuple(_entry(*row) for row in rows))


def _sum_of(sums: LedgerSums, later: LedgerSums) -> LedgerSums:
    """Return the sums of two consecutive ranges of batches; of the gauge `waiting` the later value counts."""
    return replace(
        later,
        batches=sums.batches + later.batches,
        first_time_ms=sums.first_time_ms,
        rows_before=sums.rows_before,
        by_table=sums.by_table + later.by_table,
        outcomes=sum_of(sums.outcomes, later.outcomes),
    )


def _entry(
    batch_id: int, time_ms: int, definition: str, duplicates: int, offsets: Sequence[Mapping[str, Any]]
) -> BatchEntry:
    """Return a batch of the ledger. offsets: a mapping (topic, partition, from, until) for each partition."""
    ranges = (BatchRange(batch_id, time_ms, o["topic"], o["partition"], o["from"], o["until"]) for o in offsets)
    return BatchEntry(batch_id, time_ms, definition, duplicates, tuple(ranges))


def _block(row: LedgerRow) -> pa.Table:
    """Return a ledger row as an Arrow table of one row, with the columns of `LEDGER`."""
    offsets = [
        {"topic": topic, "partition": partition, "from": first, "until": until}
        for topic, partitions in sorted(row.offsets.items())
        for partition, (first, until) in sorted(partitions.items())
    ]
    counts = {name: getattr(row.outcomes, name) for name in _OUTCOMES}
    # The fields that have the name and the value of their column.
    unchanged = {f.name: getattr(row, f.name) for f in fields(row) if f.name in _SCHEMA.names}
    by_table = {name: list(getattr(row, name).items()) for name in ("written_by_table", "rows_before_by_table")}
    values = {**unchanged, **counts, **by_table, "batch_time": row.batch_time_ms, "offsets": offsets}
    return pa.Table.from_pylist([values], schema=_SCHEMA)
