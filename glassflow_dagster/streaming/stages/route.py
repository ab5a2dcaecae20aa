"""Routing: each event goes to the first of the sink's tables whose condition is true for it."""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.config.model.sink import Unrouted
from glassflow_dagster.config.stages import FilterStage
from glassflow_dagster.streaming.stages.errors import is_active, set_error
from glassflow_dagster.streaming.stages.filter import evaluate
from glassflow_dagster.streaming.stages.scope import Scope

TABLE_INDEX = "table_index"
_STAGE = "route"


def choose_table(
    events: DataFrame, conditions: Sequence[FilterStage | None], scope: Scope, unrouted: Unrouted | None
) -> DataFrame:
    """Choose the table of each event.

    conditions: of the tables, in the order of `Sink.by_table`: that of the own table first, which takes what no other
    does; None for one that takes all the rest. unrouted: what becomes of an event that none takes.
    Columns in: the columns in scope, error, drop_reason. Column added: table_index INT (position in `conditions`), NULL
    for a record that is dropped or a dead letter. Columns changed: error is set where a condition cannot be evaluated;
    of an event that no table takes, drop_reason is 'filtered', or error is set.
    """
    # All conditions at once: one after the other, for the events that are left, they would nest in each other, and
    # where Spark pushes a condition on the error down, as `verify --exact` has one, the plan would not fit into memory.
    results = []
    for index in (*range(1, len(conditions)), 0):
        if condition := conditions[index]:
            name = f"_result_{index}"
            events = evaluate(events, condition, scope, is_active(), name)
            results.append((index, F.col(name)))
    takes_the_rest = F.lit(0) if conditions[0] is None else F.lit(None).cast("int")
    why_not = F.lit("no table of the sink takes this event" if unrouted == "dead_letter" else None).cast("string")
    chosen = _first(results, F.lit, lambda _: F.lit(None)).otherwise(takes_the_rest)
    reason = _first(results, lambda _: F.lit(None), lambda result: result["reason"])
    reason = reason.otherwise(why_not if conditions[0] else F.lit(None))
    route = F.when(is_active(), F.struct(chosen.alias("table"), reason.alias("reason")))
    routed = events.withColumn("_route", route).withColumn(TABLE_INDEX, F.col("_route.table"))
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
    which they are asked. taken: the value where the table takes the event, by its index; failed: where its condition
    fails, by its result.
    """
    # The module begins a CASE by the method that goes on with one.
    chain: Any = F
    for index, result in results:
        chain = chain.when(result["reason"].isNotNull(), failed(result)).when(result["passes"], taken(index))
    case: Column = chain
    return case
