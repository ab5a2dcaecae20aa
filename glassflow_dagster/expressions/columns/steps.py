"""The parts of expressions as columns of their own, computed one step after the other.

A part's value and error are each named several times by what encloses it. Written out they would grow with every
level, by powers: a path of a few names became a hundred thousand characters, took Spark seconds to plan and a method
too large for Java to compile. As a column of an earlier projection a part is computed once, and named for nothing.
"""

from itertools import count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


class Steps:
    """The parts of the expressions of one stage, by the step in which they can be computed."""

    def __init__(self, prefix: str = "_step") -> None:
        self._prefix = prefix
        self._numbers = count()
        self._columns: dict[int, list[Column]] = {}
        self._names: list[str] = []

    def take(self, column: Column, step: int) -> Column:
        """Have a column computed in a step, counted from 1, by columns of earlier ones; gives its name as a column."""
        name = f"{self._prefix}{next(self._numbers)}"
        self._columns.setdefault(step, []).append(column.alias(name))
        self._names.append(name)
        return F.col(name)

    def before(self, frame: DataFrame) -> DataFrame:
        """Add the columns of all steps."""
        for step in sorted(self._columns):
            frame = frame.select("*", *self._columns[step])
        return frame

    def after(self, frame: DataFrame) -> DataFrame:
        """Remove them, once what needs them is there."""
        return frame.drop(*self._names)
