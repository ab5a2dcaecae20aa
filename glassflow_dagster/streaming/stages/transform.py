"""Stateless transforms: expressions make the fields of an event anew."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.config.stages import CheckedOutput, TransformStage
from glassflow_dagster.expressions.columns.compile import Compiled, compile_expression
from glassflow_dagster.expressions.columns.outputs import as_output
from glassflow_dagster.expressions.columns.steps import Steps
from glassflow_dagster.streaming.stages.errors import is_active, set_error
from glassflow_dagster.streaming.stages.scope import Scope


def transform(events: DataFrame, stage: TransformStage, names: Scope, place: int) -> tuple[DataFrame, Scope]:
    """Evaluate the outputs, and give the names that stand for them from here on.

    Columns in: those that the names stand for, error, drop_reason. Column added: outputs_<place> STRUCT, a field an
    output. error is set, with the expression, where one cannot be evaluated; the first one in order is named.
    """
    steps = Steps()
    compiled = [(output, _compiled(output, names, steps)) for output in stage.outputs]
    reasons = [_reason(output, column) for output, column in compiled]
    made = F.struct(
        *(column.value.alias(output.name) for output, column in compiled),
        F.coalesce(*reasons, F.lit(None).cast("string")).alias("_reason"),
    )
    column = f"outputs_{place}"
    evaluated = steps.after(steps.before(events).withColumn(column, F.when(is_active(), made)))
    after = names.after(
        {output.name: output.kind for output in stage.outputs},
        {output.name: F.col(column).getField(output.name) for output in stage.outputs},
    )
    return set_error(evaluated, "transform", F.col(column)["_reason"]), after


def _compiled(output: CheckedOutput, names: Scope, steps: Steps) -> Compiled:
    return as_output(compile_expression(output.value, names.visible, steps), output.output_type)


def _reason(output: CheckedOutput, column: Compiled) -> Column:
    text = f"output '{output.name}', {' '.join(output.value.text.split())}: "
    return F.when(column.error.isNotNull(), F.concat(F.lit(text), column.error))
