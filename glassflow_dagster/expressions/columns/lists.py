"""Lists: what predicates say of their elements, and parts of them.

A list is a Spark array of the elements' kind. A predicate's errors are errors of the whole, as far as expr comes: it
stops at the first element that decides, and so what stands behind that one cannot fail.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Asked:
    """What a predicate function gives, and why not: STRING, NULL where there is no error; None for what cannot fail."""

    value: Column
    error: Column | None


# What a predicate says of an element: a value, and an error.
Answer = Callable[[Column], tuple[Column, Column | None]]


def ask(function: str, elements: Column, answer: Answer) -> Asked:
    """Ask a predicate of every element. Functions: those of PREDICATES; `sum` gives what there is to add."""
    outcomes, fails = _outcomes(elements, answer)
    if function in _DECIDED:
        return _DECIDED[function](outcomes, fails)
    error = _first(_failed(outcomes))["error"] if fails else None
    return Asked(_OF_ALL[function](outcomes), error)


def _outcomes(elements: Column, answer: Answer) -> tuple[Column, bool]:
    """Give ARRAY<STRUCT<element, index, value, error>>, and whether there can be an error at all."""
    fails = False

    def outcome(element: Column, index: Column) -> Column:
        nonlocal fails
        value, error = answer(element)
        fails = error is not None
        told = F.lit(None).cast("string") if error is None else error
        return F.struct(
            element.alias("element"), index.cast("bigint").alias("index"), value.alias("value"), told.alias("error")
        )

    return F.transform(elements, outcome), fails


def _failed(outcomes: Column) -> Column:
    return F.filter(outcomes, lambda outcome: outcome["error"].isNotNull())


def _true(outcomes: Column) -> Column:
    return F.filter(outcomes, lambda outcome: outcome["value"])


def _decisive(outcomes: Column, *, truth: bool) -> Column:
    """Give the outcomes at which expr stops: those that say `truth`, and errors."""
    return F.filter(
        outcomes, lambda outcome: (outcome["value"] if truth else ~outcome["value"]) | outcome["error"].isNotNull()
    )


def _first(listed: Column) -> Column:
    return F.get(listed, F.lit(0))


def _exists(*, truth: bool, found: bool) -> Callable[[Column, bool], Asked]:
    def decide(outcomes: Column, fails: bool) -> Asked:
        decisive = _decisive(outcomes, truth=truth)
        some = F.size(decisive) > 0
        return Asked(some if found else ~some, _first(decisive)["error"] if fails else None)

    return decide


def _find(name: str, *, from_end: bool = False) -> Callable[[Column, bool], Asked]:
    def decide(outcomes: Column, fails: bool) -> Asked:
        decisive = _first(_decisive(F.reverse(outcomes) if from_end else outcomes, truth=True))
        return Asked(decisive[name], decisive["error"] if fails else None)

    return decide


# Functions that stop at the first element that decides.
_DECIDED: dict[str, Callable[[Column, bool], Asked]] = {
    "any": _exists(truth=True, found=True),
    "none": _exists(truth=True, found=False),
    "all": _exists(truth=False, found=False),
    "find": _find("element"),
    "findLast": _find("element", from_end=True),
    "findIndex": _find("index"),
    "findLastIndex": _find("index", from_end=True),
}

# Functions that look at every element.
_OF_ALL: dict[str, Callable[[Column], Column]] = {
    "one": lambda outcomes: F.size(_true(outcomes)) == 1,
    "count": lambda outcomes: F.size(_true(outcomes)).cast("bigint"),
    "filter": lambda outcomes: F.transform(_true(outcomes), lambda outcome: outcome["element"]),
    "map": lambda outcomes: F.transform(outcomes, lambda outcome: outcome["value"]),
    "sum": lambda outcomes: F.transform(outcomes, lambda outcome: outcome["value"]),
}


ASKED = (*_DECIDED, *_OF_ALL)


def bound(column: Column, body: Callable[[Column], Column]) -> Column:
    """Write an expression that uses a column several times so that the column stands in it once."""
    return F.get(F.transform(F.array(column), body), F.lit(0))


def part_of_list(listed: Column, start: Column | None, end: Column | None) -> Column:
    """Give `list[start:end]`: negative bounds count from the end, and bounds outside are the ends."""

    def part(whole: Column) -> Column:
        first, size = _place(F.size(whole), start, end)
        return F.slice(whole, first + F.lit(1), size)

    return bound(listed, part)


def part_of_text(text: Column, start: Column | None, end: Column | None) -> Column:
    """Give `text[start:end]`, counted in characters."""

    def part(whole: Column) -> Column:
        first, size = _place(F.char_length(whole), start, end)
        return F.substr(whole, first + F.lit(1), size)

    return bound(text, part)


def _place(size: Column, start: Column | None, end: Column | None) -> tuple[Column, Column]:
    """Give the first position, from 0, and the number of what lies between two bounds: INT."""
    first, last = (F.lit(0) if start is None else _inside(start, size)), (size if end is None else _inside(end, size))
    return first, F.greatest(last - first, F.lit(0))


def _inside(position: Column, size: Column) -> Column:
    counted = F.when(position < 0, position + size).otherwise(position)
    return F.least(F.greatest(counted, F.lit(0).cast("bigint")), size.cast("bigint")).cast("int")
