"""Room for a batch's insert tokens: a table must know all of them when the batch is repeated.

A batch's blocks follow from its records, whose number is limited for it, except where a record is many events (OTLP):
how many is known only when they are written. So each task counts the tokens of its inserts, and enlarges the table's
deduplication window before an insert for which it might be too small. A batch may use half of a window; the other half
is for the batch of another pipeline.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from glassflow_dagster.stores.clickhouse.tables.token_window import TOKENS_KEPT

# The window is checked again when a task has used this part more of it: two tasks that enlarge it at the same time may
# leave the smaller one of two sizes.
_CHECKED_AGAIN = 1 / 8


@dataclass(frozen=True)
class TokenShare:
    """A task's share of the tokens that a table keeps.

    tasks: the number of the batch's tasks, at most.
    tokens_per_insert: the most tokens of one insert, which are several in a partitioned table.
    may_enlarge: whether the pipeline may enlarge the window of its target.
    """

    tasks: int
    tokens_per_insert: int
    may_enlarge: bool


@dataclass
class TokenRoom:
    """The room of one task's tokens in the deduplication window of one table, which has `TOKENS_KEPT` at least.

    keep: ensures that the table keeps so many tokens, or raises `GlassflowError`.
    """

    tasks: int
    tokens_per_insert: int
    keep: Callable[[int], None]
    _used: int = field(default=0, init=False)
    # The tokens of this task for which the window was seen to suffice.
    _checked: int = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the window that each table has when the pipeline has started."""
        self._checked = TOKENS_KEPT // 2 // self.tasks

    def reserve(self) -> None:
        """Enlarge the table's window if one more insert, which is to be sent, might use up the batch's half of it.

        Raises what `keep` raises.
        """
        self._used += self.tokens_per_insert
        if self._used <= self._checked:
            return
        # As if every task had used as many tokens as this one. The window is doubled, since each change of a setting
        # writes the table's metadata.
        tokens = TOKENS_KEPT
        while tokens // 2 // self.tasks < self._used:
            tokens *= 2
        self.keep(tokens)
        self._checked = min(tokens // 2 // self.tasks, int(self._used * (1 + _CHECKED_AGAIN)))
