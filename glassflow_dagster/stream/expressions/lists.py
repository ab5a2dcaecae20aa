"""Lists: functions that evaluate a predicate for every element (any, filter, find ...), and slices.

A list is a Spark array of the elements' type. The error of a predicate is an error of the function call. As in expr,
`any` and the like stop at the first element that decides the result, so that errors of later elements do not count.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True)
class PredicateResult:
    """The columns of a predicate function's call. error: STRING, NULL where it succeeds; None when it cannot fail."""

    value: Column
    error: Column | None


# Compiles the predicate for the column of an element: the value, and the error (None when it cannot fail).
Evaluate = Callable[[Column], tuple[Column, Column | None]]


def apply_predicate(function: str, elements: Column, evaluate: Evaluate) -> PredicateResult:
    """Return the result of a function of PREDICATES for a list; for `sum` the list of the numbers to add up.

    evaluate: compiles the predicate for the column of an element. Functions such as `any` stop at an element that
    decides the result; the others evaluate every element, and the first error is the call's.
    """
    outcomes, can_fail = _outcomes(elements, evaluate)
    if function in _STOPPING:
        return _STOPPING[function](outcomes, can_fail)
    error = _first(_with_error(outcomes))["error"] if can_fail else None
    return PredicateResult(_EXHAUSTIVE[function](outcomes), error)


def _outcomes(elements: Column, evaluate: Evaluate) -> tuple[Column, bool]:
    """Evaluate the predicate per element: ARRAY<STRUCT<element, index, value, error>>; and whether it can fail."""
    can_fail = False  # set by `outcome`, which F.transform calls once, with columns

    def outcome(element: Column, index: Column) -> Column:
        nonlocal can_fail
        value, error = evaluate(element)
        can_fail = error is not None
        error_or_null = F.lit(None).cast("string") if error is None else error
        return F.struct(
            element.alias("element"),
            index.cast("bigint").alias("index"),
            value.alias("value"),
            error_or_null.alias("error"),
        )

    return F.transform(elements, outcome), can_fail


def _with_error(outcomes: Column) -> Column:
    return F.filter(outcomes, lambda outcome: outcome["error"].isNotNull())


def _true(outcomes: Column) -> Column:
    return F.filter(outcomes, lambda outcome: outcome["value"])


def _decisive(outcomes: Column, *, truth: bool) -> Column:
    """Return the outcomes at which expr stops: those whose value is `truth`, and those with an error."""
    return F.filter(
        outcomes, lambda outcome: (outcome["value"] if truth else ~outcome["value"]) | outcome["error"].isNotNull()
    )


def _first(outcomes: Column) -> Column:
    return F.get(outcomes, F.lit(0))


def _quantifier(*, stop_at: bool, result_when_stopped: bool) -> Callable[[Column, bool], PredicateResult]:
    """Return the function any, none or all: it stops at the first element for which the predicate is `stop_at`.

    result_when_stopped: the result if there is such an element; the opposite if there is none. It also stops at the
    first element for which the predicate fails, whose error is then that of the result.
    outcomes of the returned function: ARRAY<STRUCT<value, error>> of the predicate, one for each element; can_fail:
    whether one of them may have an error.
    """

    def evaluate(outcomes: Column, can_fail: bool) -> PredicateResult:
        decisive = _decisive(outcomes, truth=stop_at)
        stopped = F.size(decisive) > 0
        return PredicateResult(
            stopped if result_when_stopped else ~stopped, _first(decisive)["error"] if can_fail else None
        )

    return evaluate


def _find(part: str, *, from_end: bool = False) -> Callable[[Column, bool], PredicateResult]:
    """Return the function that finds the first (or last) true element. part: what it returns, `element` or `index`."""

    def evaluate(outcomes: Column, can_fail: bool) -> PredicateResult:
        # Of the first element that is true or has an error.
        outcome = _first(_decisive(F.reverse(outcomes) if from_end else outcomes, truth=True))
        return PredicateResult(outcome[part], outcome["error"] if can_fail else None)

    return evaluate


# Functions that stop at the first element that decides the result.
_STOPPING: dict[str, Callable[[Column, bool], PredicateResult]] = {
    "any": _quantifier(stop_at=True, result_when_stopped=True),
    "none": _quantifier(stop_at=True, result_when_stopped=False),
    "all": _quantifier(stop_at=False, result_when_stopped=False),
    "find": _find("element"),
    "findLast": _find("element", from_end=True),
    "findIndex": _find("index"),
    "findLastIndex": _find("index", from_end=True),
}

# Functions that evaluate every element.
_EXHAUSTIVE: dict[str, Callable[[Column], Column]] = {
    "one": lambda outcomes: F.size(_true(outcomes)) == 1,
    "count": lambda outcomes: F.size(_true(outcomes)).cast("bigint"),
    "filter": lambda outcomes: F.transform(_true(outcomes), lambda outcome: outcome["element"]),
    "map": lambda outcomes: F.transform(outcomes, lambda outcome: outcome["value"]),
    "sum": lambda outcomes: F.transform(outcomes, lambda outcome: outcome["value"]),
}


PREDICATE_FUNCTIONS = (*_STOPPING, *_EXHAUSTIVE)


def evaluate_once(column: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body(column)` with the column computed once, however often the body uses it.

    Spark has no `let`; a lambda over an array of one binds the value.
    """
    return F.get(F.transform(F.array(column), body), F.lit(0))


def slice_list(elements: Column, start: Column | None, end: Column | None) -> Column:
    """Return `list[start:end]`: negative bounds count from the end, and bounds outside the list are clamped to it."""

    def cut(bound_elements: Column) -> Column:
        start_position, length = _start_and_length(F.size(bound_elements), start, end)
        # F.slice counts from 1.
        return F.slice(bound_elements, start_position + F.lit(1), length)

    return evaluate_once(elements, cut)


def slice_text(text: Column, start: Column | None, end: Column | None) -> Column:
    """Return `text[start:end]`, counted in characters; bounds as for `slice_list`."""

    def cut(bound_text: Column) -> Column:
        start_position, length = _start_and_length(F.char_length(bound_text), start, end)
        # F.substr counts from 1.
        return F.substr(bound_text, start_position + F.lit(1), length)

    return evaluate_once(text, cut)


def _start_and_length(size: Column, start: Column | None, end: Column | None) -> tuple[Column, Column]:
    """Return the start position (from 0) and the length of a slice of something of this size: two INTs.

    start, end: the bounds of `[start:end]`; None where the slice has none. The length is 0 when the end is not behind
    the start.
    """
    start_position = F.lit(0) if start is None else _clamped(start, size)
    end_position = size if end is None else _clamped(end, size)
    return start_position, F.greatest(end_position - start_position, F.lit(0))


def _clamped(bound: Column, size: Column) -> Column:
    """Return a bound as a position from 0 to size: INT. A negative bound counts from the end."""
    from_start = F.when(bound < 0, bound + size).otherwise(bound)
    return F.least(F.greatest(from_start, F.lit(0).cast("bigint")), size.cast("bigint")).cast("int")
