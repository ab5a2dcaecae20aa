"""Filters: an event goes on when an expression is true for it, and is counted when it is false."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.config.stages import FilterStage
from glassflow_dagster.expressions.columns.compile import compile_expression
from glassflow_dagster.expressions.columns.outputs import as_output
from glassflow_dagster.expressions.columns.steps import Steps
from glassflow_dagster.streaming.stages.errors import is_active, set_error
from glassflow_dagster.streaming.stages.scope import Scope


def keep_matching(events: DataFrame, stage: FilterStage, names: Scope, among: Column | None = None) -> DataFrame:
    """Drop the events for which the condition is false, of those that `among` is true for.

    Columns in: those that the names stand for, error, drop_reason. Columns changed: drop_reason is 'filtered' where the
    condition is false; error is set where it cannot be evaluated, or is neither true nor false.
    """
    steps = Steps()
    condition = as_output(compile_expression(stage.condition, names.visible, steps), "bool")
    problem = F.coalesce(condition.error, F.when(condition.value.isNull(), F.lit("nil is neither true nor false")))
    reason = F.concat(F.lit(f"{' '.join(stage.condition.text.split())}: "), problem)
    # One look at each record: the verdict is a column of its own, so that it is not computed once for each use.
    concerned = is_active() if among is None else is_active() & among
    seen = F.struct(condition.value.alias("kept"), reason.alias("reason"))
    judged = steps.after(steps.before(events).withColumn("_verdict", F.when(concerned, seen)))
    verdict = F.col("_verdict")
    filtered = concerned & verdict["reason"].isNull() & ~verdict["kept"]
    return (
        set_error(judged, "filter", verdict["reason"])
        .withColumn("drop_reason", F.when(filtered, F.lit("filtered")).otherwise(F.col("drop_reason")))
        .drop("_verdict")
    )
