"""The totals of a driver's batches, as `run`, `status` and the heartbeat tell them."""

from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    # Whoever reads a heartbeat answers at once: no library of ClickHouse's or Arrow's is loaded for it.
    from glassflow_dagster.bookkeeping.ledger import Outcomes


class Totals(BaseModel):
    """What became of the records, as the ledger counts them; the last four are of a join only.

    waiting is a level: the left events of a join that wait now.
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

    @classmethod
    def of(cls, outcomes: "Outcomes") -> "Totals":
        """Take them from the ledger's."""
        return cls(**{name: getattr(outcomes, name) for name in cls.model_fields})

    def __add__(self, other: "Totals") -> "Totals":
        """Add count by count; `other` is the later one, whose level counts."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in Totals.model_fields}
        return Totals(**{**sums, "waiting": other.waiting})
