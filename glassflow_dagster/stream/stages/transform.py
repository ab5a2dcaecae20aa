"""Stateless transforms: expressions compute the fields of an event."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.stages import CheckedOutput, TransformStage
from glassflow_dagster.stream.expressions.compile import Compiled, compile_expression
from glassflow_dagster.stream.expressions.outputs import as_output
from glassflow_dagster.stream.expressions.steps import Steps
from glassflow_dagster.stream.stages.error_column import is_active, set_error
from glassflow_dagster.stream.stages.scope import Scope


def transform(events: DataFrame, stage: TransformStage, scope: Scope, index: int) -> tuple[DataFrame, Scope]:
    """Compute the outputs of a stateless transform; return the events with them, and the scope of the next stage.

    scope: the names that the expressions may use, with their columns. index: the stage's index in the pipeline; it
    makes the name of the new column unique.
    Columns in: the columns in scope, error, drop_reason. Column added: outputs_<index> STRUCT, one field per output and
    _reason; NULL for a record that is dropped or a dead letter already. Column changed: error, set where an output
    cannot be evaluated; its reason names the first such output, with its expression.
    """
    steps = Steps()
    compiled = [(output, _compile(output, scope, steps)) for output in stage.outputs]
    reasons = [_reason(output, column) for output, column in compiled]
    outputs = F.struct(
        *(column.value.alias(output.name) for output, column in compiled),
        F.coalesce(*reasons, F.lit(None).cast("string")).alias("_reason"),
    )
    name = f"outputs_{index}"
    # The parts of the expressions are temporary columns: `steps` adds them before the struct, and removes them after.
    with_parts = steps.before(events)
    evaluated = steps.after(with_parts.withColumn(name, F.when(is_active(), outputs)))
    next_scope = scope.after_transform(
        {output.name: output.kind for output in stage.outputs},
        {output.name: F.col(name).getField(output.name) for output in stage.outputs},
    )
    return set_error(evaluated, "transform", F.col(name)["_reason"]), next_scope


def _compile(output: CheckedOutput, scope: Scope, steps: Steps) -> Compiled:
    """Compile an output's expression to columns: its value, of the type that the output declares, and its error."""
    return as_output(compile_expression(output.value, scope.visible, steps), output.output_type)


def _reason(output: CheckedOutput, column: Compiled) -> Column:
    """Return the reason, STRING, why an output cannot be evaluated; NULL where it can."""
    expression_on_one_line = " ".join(output.value.text.split())
    text = f"output '{output.name}', {expression_on_one_line}: "
    return F.when(column.error.isNotNull(), F.concat(F.lit(text), column.error))
