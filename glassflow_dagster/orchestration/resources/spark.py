"""The Spark resource for batch jobs in Dagster's process (the comparison of keys), not for streams.

It extends dagster-pyspark's lazy resource by the jars and settings that the pipeline stages need.
"""

import tempfile
from pathlib import Path

from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.spark import spark_settings
from glassflow_dagster.stream.spark.session import start_session


class StageSparkResource(LazyPySparkResource):
    """Starts a Spark session with the project's jars and settings on first use."""

    def _init_session(self) -> None:
        """Start the session (dagster-pyspark calls this on the first access to `spark_session`)."""
        if self._spark_session is None:
            # A temporary folder is enough: nothing in it is needed after the run.
            scratch = Path(tempfile.mkdtemp(prefix="glassflow-spark-"))
            self._spark_session: SparkSession = start_session(
                "glassflow dagster", scratch, spark_settings(self.spark_config), lambda _: None
            )
