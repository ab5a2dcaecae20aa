"""The resources that all assets, checks and sensors share, and the executor of their runs.

`spark_config` of the `pyspark` resource is the one place for Spark settings. Each driver starts its own session with
them; the resource itself starts a session only for the job that compares keys.
"""

import dagster as dg

from glassflow_dagster.driver.process import state_folder
from glassflow_dagster.resources.clickhouse import ClickHouseResource
from glassflow_dagster.resources.kafka import KafkaResource
from glassflow_dagster.resources.spark import StageSparkResource
from glassflow_dagster.resources.stream_runner import LocalStreamRunner
from glassflow_dagster.resources.webhook import AlertResource


@dg.definitions
def resources() -> dg.Definitions:
    """Register the resources and the executor."""
    pyspark = StageSparkResource(spark_config={})
    return dg.Definitions(
        resources={
            "pyspark": pyspark,
            "stream_runner": LocalStreamRunner(pyspark=pyspark, state=str(state_folder())),
            "kafka": KafkaResource(),
            "clickhouse": ClickHouseResource(),
            "alerts": AlertResource(),
        },
        # A health check has two short steps; starting a process for each would take twenty times as long as the steps.
        executor=dg.in_process_executor,
    )
