"""Spark for what Dagster itself computes: a bounded job, never a stream.

It is dagster-pyspark's lazy resource, so `spark_config` is where one's settings go, for the drivers of streams too. Its
session carries this project's jars and settings, which the stages need.
"""

import tempfile
from pathlib import Path

from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pyspark.sql import SparkSession

from glassflow_dagster.config.model.spark import spark_text
from glassflow_dagster.streaming.spark.session import start_session


def spark_settings(resource: LazyPySparkResource) -> dict[str, str]:
    """Give a resource's settings by their full names."""
    return {key: spark_text(value) for key, value in flatten_dict(resource.spark_config)}  # type: ignore[no-untyped-call]


class StageSparkResource(LazyPySparkResource):
    """A session in which the stages of a pipeline run; started when it is first asked for."""

    def _init_session(self) -> None:
        if self._spark_session is None:
            # Dagster gives a run no folder that outlives it, and nothing here has to.
            scratch = Path(tempfile.mkdtemp(prefix="glassflow-spark-"))
            self._spark_session: SparkSession = start_session(
                "glassflow dagster", scratch, spark_settings(self), lambda _: None
            )
