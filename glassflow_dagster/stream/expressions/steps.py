"""Compute the nodes of an expression tree in columns of their own, one projection (step) after the other.

A parent node uses the value and the error of its operands several times. Nested in one Spark expression they would
grow exponentially with the depth: a path of a few names became a hundred thousand characters, which took Spark seconds
to plan, and a generated method too large for Java to compile. As a column of an earlier projection each node is
computed once, and a reference to it costs nothing.
"""

from itertools import count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


class Steps:
    """The intermediate columns of the expressions of one stage, by the step that computes them.

    A step is one projection (SELECT); it may read the columns of earlier steps.
    """

    def __init__(self, prefix: str = "_step") -> None:
        self._prefix = prefix
        self._numbers = count()
        # Step (from 1) -> the columns that it computes.
        self._columns: dict[int, list[Column]] = {}
        self._names: list[str] = []

    def take(self, column: Column, step: int) -> Column:
        """Register a column for a step (from 1); return a reference to it, valid in later steps and after `before`."""
        name = f"{self._prefix}{next(self._numbers)}"
        self._columns.setdefault(step, []).append(column.alias(name))
        self._names.append(name)
        return F.col(name)

    def before(self, frame: DataFrame) -> DataFrame:
        """Return the frame with the columns of all steps added; to be called before the expressions are evaluated."""
        for step in sorted(self._columns):
            frame = frame.select("*", *self._columns[step])
        return frame

    def after(self, frame: DataFrame) -> DataFrame:
        """Return the frame without the columns of the steps; to be called after the expressions are evaluated."""
        return frame.drop(*self._names)
