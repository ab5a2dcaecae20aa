"""Counts the outcomes of a partition's records (written, duplicates, dead letters, ...) from the records themselves."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import reduce
from itertools import zip_longest
from operator import add
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stream.stages.columns import ITEM, MAX_EVENT_TIMES, NO_EVENT_TIME, RECORD, TALLIES, position


@dataclass
class BatchOutcomes(Outcomes):
    """The `Outcomes` of a batch, or of one of its partitions, with what else a worker reports to the driver.

    The driver adds up those of the partitions (`total`), writes the fields of `Outcomes` into the batch's `LedgerRow`,
    and uses the others itself. Unlike in the ledger, `waiting` is a difference here: by how many the left events that
    wait for a match have become more or, if negative, fewer.
    """

    blocks: int = 0
    bytes: int = 0
    # Records whose raw value reached the sink, and the bytes of these values.
    sized: int = 0
    sized_bytes: int = 0
    left_max_event_time: int = NO_EVENT_TIME
    right_max_event_time: int = NO_EVENT_TIME
    # The rows that were written to each of the sink's tables, in their order; zeros at the end are left out.
    written_by_table: list[int] = field(default_factory=list)

    def count_read(self, records: int) -> None:
        """Count records that are one event each."""
        self.read += records
        self.records += records

    def count_sizes(self, records: int, sizes: pa.Array) -> None:
        """Count records that have a value, and the bytes of their values, which limit the next batch."""
        self.sized += records
        # The sum of no rows is NULL.
        self.sized_bytes += pc.sum(sizes).as_py() or 0

    def count_written(self, table: int, rows: int) -> None:
        """Count rows that were written. table: its position among the sink's tables."""
        self.written += rows
        self.written_by_table = self.by_table(table + 1)
        self.written_by_table[table] += rows

    def by_table(self, tables: int) -> list[int]:
        """Return the rows that were written to each table, with zeros for at least so many tables."""
        return self.written_by_table + [0] * (tables - len(self.written_by_table))

    def __add__(self, other: "BatchOutcomes") -> "BatchOutcomes":
        """Add field by field; of the newest event times take the later one."""
        sums = {
            name: (max if name in MAX_EVENT_TIMES else add)(getattr(self, name), getattr(other, name))
            for name in _NUMBERS
        }
        by_table = [sum(pair) for pair in zip_longest(self.written_by_table, other.written_by_table, fillvalue=0)]
        return BatchOutcomes(**sums, written_by_table=by_table)

    def to_batch(self) -> pa.RecordBatch:
        """Return one row with the columns of `BATCH_OUTCOMES_SCHEMA`."""
        return pa.RecordBatch.from_pylist([vars(self)], schema=_ARROW_SCHEMA)


_NUMBERS = tuple(f.name for f in fields(BatchOutcomes) if f.name != "written_by_table")
_ARROW_SCHEMA = pa.schema([*((name, pa.int64()) for name in _NUMBERS), ("written_by_table", pa.list_(pa.int64()))])
BATCH_OUTCOMES_SCHEMA = ", ".join([*(f"{name} bigint" for name in _NUMBERS), "written_by_table array<bigint>"])


def total(outcomes: Iterable[BatchOutcomes]) -> BatchOutcomes:
    """Return the sum of the partitions' outcomes, which is that of the batch."""
    return reduce(BatchOutcomes.__add__, outcomes, BatchOutcomes())


class RecordCounter(Protocol):
    """Counts the outcomes of a query's records; one implementation per kind of query (one source, or a join)."""

    @property
    def position_columns(self) -> tuple[str, ...]:
        """The columns that order the rows of a partition; together they identify a row of a batch."""

    def count_dropped(self, batch: pa.RecordBatch, outcomes: BatchOutcomes) -> None:
        """Count the records that become neither a row nor a dead letter, and the sizes of all of them.

        Columns: those of the query.
        """

    def count_stored(self, block: pa.Table, outcomes: BatchOutcomes) -> None:
        """Count the records of a block of rows and dead letters as read. Columns: those of the query."""

    def count_dead_letters(self, dead_letters: pa.Table, outcomes: BatchOutcomes) -> None:
        """Count dead letters, in addition to `count_stored`. Columns: those of the query."""


@dataclass(frozen=True)
class SingleTopicCounter:
    """The counter for the query of a pipeline with one source: a row is one record, and its duplicates' number.

    Each method adds the records that it counts to `read`, too.
    """

    position_columns: tuple[str, ...] = position(())

    def count_dropped(self, batch: pa.RecordBatch, outcomes: BatchOutcomes) -> None:
        """Count duplicates, filtered and late records, which have no row. batch: all rows, also those that have one."""
        outcomes.count_read(_count_dropped(batch, outcomes))
        _count_sizes_of_records(batch, outcomes)

    def count_stored(self, block: pa.Table, outcomes: BatchOutcomes) -> None:
        """Count the records as read."""
        outcomes.count_read(block.num_rows)

    def count_dead_letters(self, dead_letters: pa.Table, outcomes: BatchOutcomes) -> None:
        """Count the dead letters."""
        outcomes.dead_letters += dead_letters.num_rows


@dataclass(frozen=True)
class ItemCounter(SingleTopicCounter):
    """The counter for the query of an OTLP source: a row is one event, or stands for a record of many events.

    `read` and the outcomes count events. A record's size is that of its events, which are what a batch has to hold; the
    row that stands for the record has it, as events may be duplicates, which are rows no longer.
    """

    position_columns: tuple[str, ...] = position((ITEM,))

    def count_dropped(self, batch: pa.RecordBatch, outcomes: BatchOutcomes) -> None:
        """Count duplicates, filtered and late events, which have no row, and the records."""
        records = batch.filter(pc.equal(batch.column("drop_reason"), RECORD))
        outcomes.read += _count_dropped(batch, outcomes)
        outcomes.records += records.num_rows
        outcomes.count_sizes(records.num_rows, records.column("size"))

    def count_stored(self, block: pa.Table, outcomes: BatchOutcomes) -> None:
        """Count the events as read."""
        outcomes.read += block.num_rows


@dataclass(frozen=True)
class JoinCounter:
    """The counter for `build_join_query`: each row is a left event, alone or with one of its right events."""

    position_columns: tuple[str, ...] = (
        "topic_rank", "partition", "offset", "right_topic_rank", "right_partition", "right_offset",
    )  # fmt: skip

    def count_dropped(self, batch: pa.RecordBatch, outcomes: BatchOutcomes) -> None:
        """Add what the join's state has counted, and count the records that were filtered before and after the join.

        A joined row that was filtered after the join counts as joined and as filtered.
        """
        tallies = {name: _sum(batch, name) for name in TALLIES}
        for name, number in tallies.items():
            setattr(outcomes, name, getattr(outcomes, name) + number)
        for name in MAX_EVENT_TIMES:
            # None for a batch without rows.
            newest = pc.max(batch.column(name)).as_py()
            setattr(outcomes, name, max(getattr(outcomes, name), NO_EVENT_TIME if newest is None else newest))
        is_joined = batch.column("is_joined")
        filtered_before, _ = _filtered_and_late(pc.filter(batch.column("drop_reason"), pc.invert(is_joined)))
        filtered_after, _ = _filtered_and_late(pc.filter(batch.column("drop_reason"), is_joined))
        outcomes.joined += filtered_after
        outcomes.joined_filtered += filtered_after
        outcomes.filtered += filtered_before + filtered_after
        # Each record of the topics is one of these: a duplicate, taken by the join, late, or filtered before the join.
        outcomes.count_read(tallies["duplicates"] + tallies["taken"] + tallies["late"] + filtered_before)
        _count_sizes_of_records(batch, outcomes)

    def count_stored(self, block: pa.Table, outcomes: BatchOutcomes) -> None:
        """Count a block's joined rows, and as read its other records: dead letters from before the join.

        The events of joined rows were counted as read by `count_dropped`, when they reached the join's state.
        """
        joined = _sum(block, "is_joined")
        outcomes.joined += joined
        outcomes.count_read(block.num_rows - joined)

    def count_dead_letters(self, dead_letters: pa.Table, outcomes: BatchOutcomes) -> None:
        """Count the dead letters, and those of them that are joined rows."""
        outcomes.dead_letters += dead_letters.num_rows
        outcomes.joined_dead_letters += _sum(dead_letters, "is_joined")


def _count_dropped(batch: pa.RecordBatch, outcomes: BatchOutcomes) -> int:
    """Count the duplicates, filtered and late events of a query on one source; return their number."""
    duplicates = _sum(batch, "duplicates")
    filtered, late = _filtered_and_late(batch.column("drop_reason"))
    outcomes.duplicates += duplicates
    outcomes.filtered += filtered
    outcomes.late += late
    return int(duplicates + filtered + late)


def _count_sizes_of_records(batch: pa.RecordBatch, outcomes: BatchOutcomes) -> None:
    """Count the sizes of records that are one event each; a tombstone has none."""
    sizes = batch.column("size")
    outcomes.count_sizes(pc.sum(pc.greater(sizes, 0)).as_py() or 0, sizes)


def _filtered_and_late(reasons: pa.Array) -> tuple[int, int]:
    """Return how many drop reasons are 'filtered', and how many 'late'."""
    counts = _dropped_as(reasons)
    return counts.get("filtered", 0), counts.get("late", 0)


def _dropped_as(reasons: pa.Array) -> dict[str | None, int]:
    """Return the number of rows by their drop reason."""
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(reasons).to_pylist()}


def _sum(batch: pa.RecordBatch | pa.Table, column: str) -> int:
    return pc.sum(batch.column(column)).as_py() or 0
