"""The Dagster job that compares every key. It reads all records and rows again, so no schedule or sensor runs it."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import suggestion
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.values import log_report, shown_figures
from glassflow_dagster.runtime.safe_text import printable, printable_values
from glassflow_dagster.stores.kafka.client import java_options


def job_name(name: str) -> str:
    """Return the name of the job. name: of the component."""
    return f"{name}__verify_exact"


def build_exact_job(
    name: str, pipelines: Sequence[PipelineConfig], spark_config: Mapping[str, str]
) -> dg.JobDefinition:
    """Build the job, which compares one of the pipelines a run. Its run fails unless all keys agree.

    spark_config: settings of the Spark session that it starts.
    """
    by_id = {pipeline.pipeline_id: pipeline for pipeline in pipelines}

    class ExactConfig(dg.Config):
        """Which pipeline to compare."""

        pipeline: str = Field(default=next(iter(by_id)), description=f"one of {', '.join(by_id)}")

    @dg.op(
        name=f"{name}__keys_agree",
        description="Reads the topics and the table again and compares every key, as `verify --exact` does.",
        out=dg.Out(dg.Nothing),
        # Bound to the job, so that it meets no resource of the code location.
        required_resource_keys={"pyspark"},
    )
    def keys_agree(context: dg.OpExecutionContext, config: ExactConfig) -> None:
        # Imported here: it takes a second, which would slow down the loading of the definitions.
        from glassflow_dagster.checks.exact.compare_keys import reconcile_keys  # noqa: PLC0415
        from glassflow_dagster.checks.exact.session import reconcile_in_own_session  # noqa: PLC0415

        pipeline = by_id.get(config.pipeline)
        if pipeline is None:
            text = f"no pipeline is called {config.pipeline!r}; {suggestion(config.pipeline, list(by_id))}"
            raise dg.Failure(text, allow_retries=False)
        try:
            if java_options(pipeline.connection):
                # The resource's session is for all pipelines, and this one's mechanism needs a JVM of its own.
                result = reconcile_in_own_session(pipeline, log_report(context.log))
            else:
                result = reconcile_keys(context.resources.pyspark.spark_session, pipeline, log_report(context.log))
        except GlassflowError as error:
            raise dg.Failure(printable(str(error)), allow_retries=False) from error
        figures = printable_values(shown_figures(pipeline, result.figures))
        description = printable(result.description)
        if not result.passed:
            raise dg.Failure(description, metadata=figures, allow_retries=False)
        context.log.info("%s", description)
        context.add_output_metadata({"description": description, **figures})

    @dg.job(
        name=job_name(name),
        description="Compares every key in Kafka with the table's.",
        resource_defs={"pyspark": _session_resource(spark_config)},
    )
    def verify_exact() -> None:
        keys_agree()

    return verify_exact


def _session_resource(spark_config: Mapping[str, str]) -> dg.ResourceDefinition:
    """Return the resource whose `spark_session` is started on first use."""

    @dg.resource(description="A local Spark session with the project's jars and settings.")
    def pyspark(_: dg.InitResourceContext) -> Any:
        # Imported here: Spark takes a second, which would slow down the loading of the definitions.
        from glassflow_dagster.orchestration.resources.spark import StageSparkResource  # noqa: PLC0415

        return StageSparkResource(spark_config=dict(spark_config))

    return pyspark
