"""Stateless transforms: expressions compute the fields of an event."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.stages import CheckedOutput, TransformStage
from glassflow_dagster.stream.stages.error_column import is_active, set_error
from glassflow_dagster.stream.stages.expressions_in_scala import REASON, Evaluated, evaluate
from glassflow_dagster.stream.stages.scope import Scope


def transform(events: DataFrame, stage: TransformStage, scope: Scope, index: int) -> tuple[DataFrame, Scope]:
    """Compute the outputs of a stateless transform; return the events with them, and the scope of the next stage.

    scope: the names that the expressions may use, with their columns.
    index: the stage's index in the pipeline; it makes the name of the new column unique.
    Columns in: the columns in scope, error, drop_reason. Column added: outputs_<index> STRUCT, one field per output and
    _reason; NULL for a record that is dropped or a dead letter already. Column changed: error, set where an output
    cannot be evaluated; its reason names the first such output, with its expression.
    """
    name = f"outputs_{index}"
    outputs = evaluate([_evaluated(output) for output in stage.outputs], scope)
    evaluated = events.withColumn(name, F.when(is_active(), outputs))
    next_scope = scope.after_transform({output.name: output.kind for output in stage.outputs}, name)
    return set_error(evaluated, "transform", F.col(name)[REASON]), next_scope


def _evaluated(output: CheckedOutput) -> Evaluated:
    """Return an output as it is evaluated; the reason of a dead letter names it and its expression, on one line."""
    prefix = f"output '{output.name}', {' '.join(output.value.text.split())}: "
    return Evaluated(output.name, output.value, output.kind, output.output_type, prefix)
