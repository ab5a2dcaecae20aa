"""What became of events, counted: in a batch, for the ledger; and in all batches, for people.

Reading a heartbeat must be fast, so this module loads neither ClickHouse's client nor Arrow.
"""

from dataclasses import dataclass, fields
from typing import TypeVar

from pydantic import BaseModel

C = TypeVar("C", bound="Counts")


@dataclass
class Counts:
    """Numbers of events by what became of them, each counted from the events themselves.

    `copies`: of events that go to several tables (`sink.match: all`), the outcomes beyond the first of each: an event
        that three tables take adds two.

    The rest is of a join.

    `taken`: events that reached the join in time; right events among them are `accepted`, left ones `matched`,
        `unmatched` or `waiting`.
    `null_keys`: taken events whose key is null and matches nothing.
    `joined`: rows that the join produced; `joined_filtered` and `joined_dead_letters` of them did not reach the table,
        and are also counted in `filtered` and `dead_letters`.
    `waiting` is a gauge (left events in the state after the batch), all other fields are counters.
    """

    read: int = 0
    written: int = 0
    duplicates: int = 0
    filtered: int = 0
    dead_letters: int = 0
    unmatched: int = 0
    late: int = 0
    waiting: int = 0
    taken: int = 0
    accepted: int = 0
    matched: int = 0
    null_keys: int = 0
    joined: int = 0
    joined_filtered: int = 0
    joined_dead_letters: int = 0
    copies: int = 0

    @property
    def left_out(self) -> int:
        """The records dropped before the table, or before the join: duplicates, late, filtered, dead letters."""
        filtered, dead_letters = self.filtered - self.joined_filtered, self.dead_letters - self.joined_dead_letters
        return self.duplicates + self.late + filtered + dead_letters

    @property
    def decided(self) -> int:
        """The events that reached the join, by what became of them: accepted, matched, unmatched or waiting."""
        return self.accepted + self.matched + self.unmatched + self.waiting


@dataclass
class Outcomes(Counts):
    """The `Counts` of one batch, or of a sum of batches, in the ledger.

    records: the number of Kafka's records, which is `read`, except where a record is many events (OTLP).
    """

    records: int = 0


def sum_of(before: C, later: C) -> C:
    """Add the counts of consecutive batches field by field; `waiting`, a gauge, is the later one's."""
    sums = {each.name: getattr(before, each.name) + getattr(later, each.name) for each in fields(later)}
    return type(later)(**{**sums, "waiting": later.waiting})


def residual(outcomes: Counts, *, joins: bool, lost_waiting: int = 0) -> int:
    """Return how many records the sums of guarantees.md leave unaccounted for; 0 where every record has its outcome.

    Without a join the sum is read + copies = written + duplicates + filtered + late + dead letters. With one, of the
    absolute differences of three sums: records read are those that reached the join and those left out before it; of
    these events each is accepted, matched, unmatched or waiting; each joined row, and each copy of one, is written,
    filtered or a dead letter.
    lost_waiting: waiting left events that accepted losses discarded.
    """
    o = outcomes
    if not joins:
        return o.read + o.copies - o.written - o.left_out
    without_outcome = o.joined + o.copies - (o.written + o.joined_filtered + o.joined_dead_letters)
    return abs(o.read - o.taken - o.left_out) + abs(o.taken - o.decided - lost_waiting) + abs(without_outcome)


class Totals(BaseModel, Counts):
    """The `Counts` of many batches, for people: what a heartbeat and the commands `run` and `status` show as JSON."""

    @classmethod
    def of(cls, outcomes: Outcomes) -> "Totals":
        """Return the totals of one batch, or of a sum of batches, from the ledger's outcomes."""
        return cls(**{name: getattr(outcomes, name) for name in cls.model_fields})

    def __add__(self, other: "Totals") -> "Totals":
        """Return the sum with the totals of later batches."""
        return sum_of(self, other)
