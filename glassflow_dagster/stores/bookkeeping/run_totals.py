"""The totals of a pipeline's batches, as `run`, `status` and the heartbeat report them."""

from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    # Reading a heartbeat must be fast, so it must not load the libraries of ClickHouse and Arrow.
    from glassflow_dagster.stores.bookkeeping.ledger import Outcomes


class Totals(BaseModel):
    """Sums of `Outcomes` over many batches, for people: what a heartbeat and the commands `run` and `status` show.

    The ledger's `Outcomes` count the records of one batch; this model has their fields, summed, and is written as JSON.
    The fields from `unmatched` on, except `late`, belong to joins. `waiting` is a gauge, not a sum: the left events
    that wait for a match now.
    """

    read: int = 0
    written: int = 0
    duplicates: int = 0
    filtered: int = 0
    dead_letters: int = 0
    unmatched: int = 0
    late: int = 0
    waiting: int = 0
    matched: int = 0
    accepted: int = 0
    null_keys: int = 0
    joined: int = 0
    taken: int = 0
    joined_filtered: int = 0
    joined_dead_letters: int = 0
    copies: int = 0

    @classmethod
    def of(cls, outcomes: "Outcomes") -> "Totals":
        """Return the totals of one batch, or of a sum of batches, from the ledger's outcomes."""
        return cls(**{name: getattr(outcomes, name) for name in cls.model_fields})

    def __add__(self, other: "Totals") -> "Totals":
        """Add field by field; `waiting`, a gauge, is that of `other`, the later one."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in Totals.model_fields}
        return Totals(**{**sums, "waiting": other.waiting})
