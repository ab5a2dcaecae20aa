"""Filters: an event passes when a condition is true for it, and is dropped and counted when it is false."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.stages import FilterStage
from glassflow_dagster.stream.stages.error_column import is_active, set_error
from glassflow_dagster.stream.stages.expressions_in_scala import REASON, Evaluated, evaluate
from glassflow_dagster.stream.stages.scope import Scope


def keep_matching(events: DataFrame, stage: FilterStage, scope: Scope, among: Column | None = None) -> DataFrame:
    """Mark the events for which the condition is false as dropped.

    scope: the names that the condition may use, with their columns.
    among: BOOLEAN, true for the events that the filter applies to (those of one source of a join); None for all.
    Columns in: the columns in scope, error, drop_reason. Columns changed: drop_reason is 'filtered' where the condition
    is false; error is set where it cannot be evaluated, or is neither true nor false.
    """
    applies = is_active() if among is None else is_active() & among
    evaluated = add_condition(events, stage, scope, applies, "_result")
    result = F.col("_result")
    filtered = applies & result[REASON].isNull() & ~result["passes"]
    return (
        set_error(evaluated, "filter", result[REASON])
        .withColumn("drop_reason", F.when(filtered, F.lit("filtered")).otherwise(F.col("drop_reason")))
        .drop("_result")
    )


def add_condition(events: DataFrame, stage: FilterStage, scope: Scope, applies: Column, name: str) -> DataFrame:
    """Evaluate a condition for the events for which `applies`, BOOLEAN, is true.

    Columns in: the columns in scope. Column added: `name` STRUCT<passes BOOLEAN, _reason STRING (why the condition
    cannot be evaluated, or is neither true nor false)>, NULL for the other events.
    """
    prefix = f"{' '.join(stage.condition.text.split())}: "
    found = evaluate([Evaluated("passes", stage.condition, "bool", "bool", prefix, is_condition=True)], scope)
    return events.withColumn(name, F.when(applies, found))
