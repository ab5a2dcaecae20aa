"""The Dagster job that compares every key. It reads all records and rows again, so no schedule or sensor runs it."""

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.values import shown_figures


def build_reconciliation(pipeline: PipelineConfig, keys: AssetKeys) -> dg.JobDefinition:
    """Build the job. Its run needs the resource `pyspark`, and fails unless all keys agree."""

    @dg.op(
        name=f"{keys.pipeline}__keys_agree",
        description="Reads the topics and the table again and compares every key, as `verify --exact` does.",
        out=dg.Out(dg.Nothing),
    )
    def keys_agree(context: dg.OpExecutionContext, pyspark: LazyPySparkResource) -> None:
        # Imported here: it takes a second, which would slow down the loading of the definitions.
        from glassflow_dagster.verification.exact.compare_keys import reconcile_keys  # noqa: PLC0415

        try:
            result = reconcile_keys(pyspark.spark_session, pipeline, context.log.info)
        except GlassflowError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        figures = shown_figures(pipeline, result.figures)
        if not result.passed:
            raise dg.Failure(result.description, metadata=figures, allow_retries=False)
        context.log.info(result.description)
        context.add_output_metadata({"description": result.description, **figures})

    @dg.job(name=f"{keys.pipeline}__verify_exact", description="Compares every key in Kafka with the table's.")
    def verify_exact() -> None:
        keys_agree()

    return verify_exact
