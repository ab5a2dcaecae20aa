"""Routing: each event goes to the first of the sink's tables whose condition is true for it, or to all of them.

Where it goes to all of them, it has one outcome nevertheless until it is written: it passes deduplication once, and if
its fields do not fit into one of the tables, it is a dead letter and goes to none.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.sink import Unrouted
from glassflow_dagster.definition.stages import FilterStage
from glassflow_dagster.stream.stages.error_column import is_active, set_error
from glassflow_dagster.stream.stages.expressions_in_scala import REASON
from glassflow_dagster.stream.stages.filter import add_condition
from glassflow_dagster.stream.stages.replays import replayed_for
from glassflow_dagster.stream.stages.scope import Scope

TABLE_INDEX = "table_index"
TABLE_INDEXES = "table_indexes"
_STAGE = "route"


def choose_table(
    events: DataFrame, conditions: Sequence[FilterStage | None], scope: Scope, unrouted: Unrouted | None
) -> DataFrame:
    """Choose the table of each event.

    conditions: of the tables, in the order of `Sink.by_table`: that of the own table first, which takes what no other
        does; None for one that takes all the rest.
    unrouted: what becomes of an event that none takes.
    Columns in: the columns in scope, error, drop_reason. Column added: table_index INT (position in `conditions`), NULL
    for a record that is dropped or a dead letter. Columns changed: error is set where a condition cannot be evaluated;
    of an event that no table takes, drop_reason is 'filtered', or error is set.
    """
    events, results = _evaluate_all(events, conditions, scope)
    takes_the_rest = F.lit(0) if conditions[0] is None else F.lit(None).cast("int")
    chosen = _first(results, F.lit, lambda _: F.lit(None)).otherwise(takes_the_rest)
    reason = _first(results, lambda _: F.lit(None), lambda result: result[REASON])
    reason = reason.otherwise(_why_not(unrouted) if conditions[0] else F.lit(None))
    return _with_choice(events, TABLE_INDEX, chosen, reason, results)


def choose_tables(
    events: DataFrame,
    conditions: Sequence[FilterStage | None],
    scope: Scope,
    unrouted: Unrouted | None,
    names: Sequence[str],
) -> DataFrame:
    """Choose all tables that take each event.

    conditions, unrouted: as of `choose_table`.
    names: the tables', `database.table`, of which a replay may name one as the only one that lacks the event; empty
        where replays cannot be told (behind a join).
    Columns in: the columns in scope, error, drop_reason, and with `names` replayed, headers. Column added:
    table_indexes ARRAY<INT> (positions in `conditions`, ascending), NULL for a record that is dropped or a dead letter.
    Columns changed: as by `choose_table`.
    """
    events, results = _evaluate_all(events, conditions, scope)
    by_index = dict(results)
    if conditions[0] is None:
        is_rest = ~reduce(or_, (result["passes"] for _, result in results))
    only = replayed_for() if names else None
    chosen = []
    for index in range(len(conditions)):
        takes = by_index[index]["passes"] if index in by_index else is_rest
        if only is not None:
            takes &= only.isNull() | (only == F.lit(names[index]))
        chosen.append(F.when(takes, F.lit(index)))
    reason = F.coalesce(*(result[REASON] for _, result in results))
    indexes = F.array_compact(F.array(*chosen))
    taken = F.when(reason.isNull() & (F.size(indexes) > 0), indexes)
    # Its other tables have it, and the only one that does not takes it no more: that is no event that none takes.
    has_others = F.lit(0).cast("boolean") if only is None else only.isNotNull()
    no_table = F.when(reason.isNull() & taken.isNull() & ~has_others, _why_not(unrouted))
    return _with_choice(events, TABLE_INDEXES, taken, F.coalesce(reason, no_table), results)


def drop_replays_for_others(events: DataFrame, names: Sequence[str]) -> DataFrame:
    """Drop a replayed event that lacks its row in another table than the chosen one, which may have its row already.

    It was sent when the sink had `match: all`. names: as of `choose_tables`.
    Columns in: error, drop_reason, replayed, headers, and with several names table_index. Column changed: drop_reason.
    """
    chosen = F.lit(names[0])
    if len(names) > 1:
        chosen = F.get(F.array(*map(F.lit, names)), F.col(TABLE_INDEX))
    is_for_other = F.coalesce(replayed_for() != chosen, F.lit(0).cast("boolean"))
    reason = F.when(is_active() & is_for_other, F.lit("filtered")).otherwise(F.col("drop_reason"))
    return events.withColumn("drop_reason", reason)


def _evaluate_all(
    events: DataFrame, conditions: Sequence[FilterStage | None], scope: Scope
) -> tuple[DataFrame, list[tuple[int, Column]]]:
    """Evaluate the conditions of all tables that have one; the results are in the order in which they are asked.

    All at once: one after the other, for the events that are left, they would nest in each other, and where Spark
    pushes a condition on the error down, as `verify --exact` has one, the plan would not fit into memory.
    """
    results = []
    for index in (*range(1, len(conditions)), 0):
        if condition := conditions[index]:
            name = f"_result_{index}"
            events = add_condition(events, condition, scope, is_active(), name)
            results.append((index, F.col(name)))
    return events, results


def _why_not(unrouted: Unrouted | None) -> Column:
    """Return the reason of an event that no table takes, STRING; NULL where it is dropped."""
    return F.lit("no table of the sink takes this event" if unrouted == "dead_letter" else None).cast("string")


def _with_choice(
    events: DataFrame, name: str, chosen: Column, reason: Column, results: Sequence[tuple[int, Column]]
) -> DataFrame:
    """Add the column `name`, what was chosen for each event; an event without it is dropped, or fails for a reason.

    results: the columns of the conditions' results, which are removed. Columns changed: error, drop_reason.
    """
    route = F.when(is_active(), F.struct(chosen.alias("table"), reason.alias("reason")))
    routed = events.withColumn("_route", route).withColumn(name, F.col("_route.table"))
    left = is_active() & F.col("_route.table").isNull()
    return (
        set_error(routed, _STAGE, F.col("_route.reason"))
        .withColumn("drop_reason", F.when(left, F.lit("filtered")).otherwise(F.col("drop_reason")))
        .drop("_route", *(f"_result_{index}" for index, _ in results))
    )


def _first(
    results: Sequence[tuple[int, Column]], taken: Callable[[int], Column], failed: Callable[[Column], Column]
) -> Column:
    """Return an expression of the first table that takes an event, or whose condition cannot be evaluated.

    results: the index of each table that has a condition (at least one), and the condition's result, in the order in
        which they are asked.
    taken: the value where the table takes the event, by its index.
    failed: where its condition fails, by its result.
    """
    # The module begins a CASE by the method that goes on with one.
    chain: Any = F
    for index, result in results:
        chain = chain.when(result[REASON].isNotNull(), failed(result)).when(result["passes"], taken(index))
    case: Column = chain
    return case
