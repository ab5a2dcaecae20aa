"""Filters: an event goes on when an expression is true for it, and is counted when it is false."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.stages import FilterStage
from glassflow_dagster.expressions.columns.compile import compile_expression
from glassflow_dagster.expressions.columns.outputs import as_output
from glassflow_dagster.expressions.columns.steps import Steps
from glassflow_dagster.streaming.decode import goes_on, refuse
from glassflow_dagster.streaming.names import Names


def keep_matching(events: DataFrame, stage: FilterStage, names: Names, among: Column | None = None) -> DataFrame:
    """Drop the events for which the condition is false, of those that `among` is true for.

    Columns in: those that the names stand for, refusal, dropped. Columns changed: dropped is 'filtered' where the
    condition is false; refusal is set where it cannot be evaluated, or is neither true nor false.
    """
    steps = Steps()
    condition = as_output(compile_expression(stage.condition, names.visible, steps), "bool")
    problem = F.coalesce(condition.error, F.when(condition.value.isNull(), F.lit("nil is neither true nor false")))
    reason = F.concat(F.lit(f"{' '.join(stage.condition.text.split())}: "), problem)
    # One look at each record: the verdict is a column of its own, so that it is not computed once for each use.
    concerned = goes_on() if among is None else goes_on() & among
    seen = F.struct(condition.value.alias("kept"), reason.alias("reason"))
    judged = steps.after(steps.before(events).withColumn("_verdict", F.when(concerned, seen)))
    verdict = F.col("_verdict")
    filtered = concerned & verdict["reason"].isNull() & ~verdict["kept"]
    return (
        refuse(judged, "filter", verdict["reason"])
        .withColumn("dropped", F.when(filtered, F.lit("filtered")).otherwise(F.col("dropped")))
        .drop("_verdict")
    )
