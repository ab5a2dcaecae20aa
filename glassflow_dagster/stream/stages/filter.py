"""Filters: an event passes when a condition is true for it, and is dropped and counted when it is false."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.stages import FilterStage
from glassflow_dagster.stream.expressions.compile import compile_expression
from glassflow_dagster.stream.expressions.outputs import as_output
from glassflow_dagster.stream.expressions.steps import Steps
from glassflow_dagster.stream.stages.error_column import is_active, set_error
from glassflow_dagster.stream.stages.scope import Scope


def keep_matching(events: DataFrame, stage: FilterStage, scope: Scope, among: Column | None = None) -> DataFrame:
    """Mark the events for which the condition is false as dropped.

    scope: the names that the condition may use, with their columns. among: BOOLEAN, true for the events that the filter
    applies to (those of one source of a join); None for all.
    Columns in: the columns in scope, error, drop_reason. Columns changed: drop_reason is 'filtered' where the condition
    is false; error is set where it cannot be evaluated, or is neither true nor false.
    """
    applies = is_active() if among is None else is_active() & among
    evaluated = evaluate(events, stage, scope, applies, "_result")
    result = F.col("_result")
    filtered = applies & result["reason"].isNull() & ~result["passes"]
    return (
        set_error(evaluated, "filter", result["reason"])
        .withColumn("drop_reason", F.when(filtered, F.lit("filtered")).otherwise(F.col("drop_reason")))
        .drop("_result")
    )


def evaluate(events: DataFrame, stage: FilterStage, scope: Scope, applies: Column, name: str) -> DataFrame:
    """Evaluate a condition for the events for which `applies`, BOOLEAN, is true.

    Columns in: the columns in scope. Column added: `name` STRUCT<passes BOOLEAN, reason STRING (why the condition
    cannot be evaluated, or is neither true nor false)>, NULL for the other events.
    """
    steps = Steps()
    condition = as_output(compile_expression(stage.condition, scope.visible, steps), "bool")
    # NULL where the condition is true or false.
    problem = F.coalesce(condition.error, F.when(condition.value.isNull(), F.lit("nil is neither true nor false")))
    condition_on_one_line = " ".join(stage.condition.text.split())
    reason = F.concat(F.lit(f"{condition_on_one_line}: "), problem)
    # The result is a column of its own, so that the condition is computed once, not once for each use.
    outcome = F.struct(condition.value.alias("passes"), reason.alias("reason"))
    # Parts of the condition are temporary columns: `steps` adds them before the result, and removes them after.
    return steps.after(steps.before(events).withColumn(name, F.when(applies, outcome)))
