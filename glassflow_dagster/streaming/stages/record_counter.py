"""What a partition's records became; all are counted from the records themselves."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import reduce
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from glassflow_dagster.bookkeeping.ledger import Outcomes

# What the state of a join counts beside its rows; each is a column of the records and an outcome.
TALLIES = ("duplicates", "taken", "accepted", "matched", "unmatched", "waiting", "late", "null_keys")
# How far each source of a join has come in event time, microseconds since 1970.
MAX_EVENT_TIMES = ("left_max_event_time", "right_max_event_time")
# Where no event says how far its source has come.
NO_EVENT_TIME = -(2**63)


@dataclass
class Counts(Outcomes):
    """The outcomes of a partition, or of a batch: `waiting` is a difference here, what has become more or fewer."""

    blocks: int = 0
    bytes: int = 0
    # Records whose size is known here, and the bytes of their values.
    sized: int = 0
    sized_bytes: int = 0
    left_max_event_time: int = NO_EVENT_TIME
    right_max_event_time: int = NO_EVENT_TIME

    def __add__(self, other: "Counts") -> "Counts":
        """Add count by count; of the max_event_times the farther one counts."""
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(Counts))
        return Counts(**{name: max(a, b) if name in MAX_EVENT_TIMES else a + b for name, a, b in pairs})

    def to_batch(self) -> pa.RecordBatch:
        """Give one row of LONG columns, in the order of `COUNTS_SCHEMA`."""
        return pa.RecordBatch.from_pylist([{f.name: getattr(self, f.name) for f in fields(Counts)}])


COUNTS_SCHEMA = ", ".join(f"{f.name} bigint" for f in fields(Counts))


def total(counts: Iterable[Counts]) -> Counts:
    """Add them all."""
    return reduce(Counts.__add__, counts, Counts())


class RecordCounter(Protocol):
    """How the records of a query are told apart and counted."""

    @property
    def place(self) -> tuple[str, ...]:
        """The columns that order the rows of a partition; no two of a batch are in one place."""

    def count_dropped(self, batch: pa.RecordBatch, counts: Counts) -> None:
        """Count what is neither a row nor a dead letter. Columns: those of the query."""

    def count_stored(self, block: pa.Table, counts: Counts) -> None:
        """Count the records that have been read for a block of rows and dead letters. Columns: those of the query."""

    def count_dead_letters(self, dead_letters: pa.Table, counts: Counts) -> None:
        """Count dead letters. Columns: those of the query."""


@dataclass(frozen=True)
class SingleTopicCounter:
    """RecordCounter of `build_query`: a row is a record."""

    place: tuple[str, ...] = ("topic_rank", "partition", "offset")

    def count_dropped(self, batch: pa.RecordBatch, counts: Counts) -> None:
        """Count duplicates, filtered and late records."""
        duplicates = _sum(batch, "duplicates")
        filtered, late = _dropped(batch.column("drop_reason"))
        counts.duplicates += duplicates
        counts.filtered += filtered
        counts.late += late
        counts.read += duplicates + filtered + late

    def count_stored(self, block: pa.Table, counts: Counts) -> None:
        """Count the records."""
        counts.read += block.num_rows

    def count_dead_letters(self, dead_letters: pa.Table, counts: Counts) -> None:
        """Count the records."""
        counts.dead_letters += dead_letters.num_rows


@dataclass(frozen=True)
class JoinCounter:
    """RecordCounter of `build_join_query`: a row is a left event, or one with each of its right events."""

    place: tuple[str, ...] = (
        "topic_rank", "partition", "offset", "right_topic_rank", "right_partition", "right_offset",
    )  # fmt: skip

    def count_dropped(self, batch: pa.RecordBatch, counts: Counts) -> None:
        """Count what the state of the join counted, and what was filtered before and behind it."""
        tallies = {name: _sum(batch, name) for name in TALLIES}
        for name, number in tallies.items():
            setattr(counts, name, getattr(counts, name) + number)
        for name in MAX_EVENT_TIMES:
            farthest = pc.max(batch.column(name)).as_py()
            setattr(counts, name, max(getattr(counts, name), NO_EVENT_TIME if farthest is None else farthest))
        is_joined = batch.column("is_joined")
        before, _ = _dropped(pc.filter(batch.column("drop_reason"), pc.invert(is_joined)))
        behind, _ = _dropped(pc.filter(batch.column("drop_reason"), is_joined))
        counts.joined += behind
        counts.joined_filtered += behind
        counts.filtered += before + behind
        counts.read += tallies["duplicates"] + tallies["taken"] + tallies["late"] + before

    def count_stored(self, block: pa.Table, counts: Counts) -> None:
        """Count the rows of the join; of records only dead letters are here that never came to it."""
        joined = _sum(block, "is_joined")
        counts.joined += joined
        counts.read += block.num_rows - joined

    def count_dead_letters(self, dead_letters: pa.Table, counts: Counts) -> None:
        """Count dead letters from before and from behind the join."""
        counts.dead_letters += dead_letters.num_rows
        counts.joined_dead_letters += _sum(dead_letters, "is_joined")


def _dropped(reasons: pa.Array) -> tuple[int, int]:
    found = {entry["values"]: entry["counts"] for entry in pc.value_counts(reasons).to_pylist()}
    return found.get("filtered", 0), found.get("late", 0)


def _sum(batch: pa.RecordBatch | pa.Table, column: str) -> int:
    return pc.sum(batch.column(column)).as_py() or 0
