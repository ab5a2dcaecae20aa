"""The comparison of every key, as a job: it reads all records and rows again, so nothing runs it by itself."""

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.values import shown_figures


def build_reconciliation(pipeline: PipelineConfig, names: AssetKeys) -> dg.JobDefinition:
    """Build the job. Its run needs the resource `pyspark`, and fails unless the keys are proven to agree."""

    @dg.op(
        name=f"{names.pipeline}__keys_agree",
        description="Reads the topics and the table again and compares every key, as `verify --exact` does.",
        out=dg.Out(dg.Nothing),
    )
    def keys_agree(context: dg.OpExecutionContext, pyspark: LazyPySparkResource) -> None:
        # The stages in Spark are a second's imports that the loading of definitions need not wait for.
        from glassflow_dagster.verification.exact.compare_keys import reconcile_keys  # noqa: PLC0415

        try:
            found = reconcile_keys(pyspark.spark_session, pipeline, context.log.info)
        except GlassflowError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        figures = shown_figures(pipeline, found.figures)
        if not found.passed:
            raise dg.Failure(found.description, metadata=figures, allow_retries=False)
        context.log.info(found.description)
        context.add_output_metadata({"description": found.description, **figures})

    @dg.job(name=f"{names.pipeline}__verify_exact", description="Compares every key in Kafka with the table's.")
    def verify_exact() -> None:
        keys_agree()

    return verify_exact
