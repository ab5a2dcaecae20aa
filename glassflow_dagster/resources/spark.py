"""The Spark resource for batch jobs in Dagster's process (the comparison of keys), not for streams.

It extends dagster-pyspark's lazy resource: its `spark_config` applies also to the drivers of streams, and its session
has the jars and settings that the pipeline stages need.
"""

import tempfile
from pathlib import Path

from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pyspark.sql import SparkSession

from glassflow_dagster.config.model.spark import spark_text
from glassflow_dagster.streaming.spark.session import start_session


def spark_settings(resource: LazyPySparkResource) -> dict[str, str]:
    """Flatten a resource's nested `spark_config` to Spark's property names and text values."""
    return {key: spark_text(value) for key, value in flatten_dict(resource.spark_config)}  # type: ignore[no-untyped-call]


class StageSparkResource(LazyPySparkResource):
    """Starts a Spark session with the project's jars and settings on first use."""

    def _init_session(self) -> None:
        """Start the session (dagster-pyspark calls this on the first access to `spark_session`)."""
        if self._spark_session is None:
            # A temporary folder is enough: nothing in it is needed after the run.
            scratch = Path(tempfile.mkdtemp(prefix="glassflow-spark-"))
            self._spark_session: SparkSession = start_session(
                "glassflow dagster", scratch, spark_settings(self), lambda _: None
            )
