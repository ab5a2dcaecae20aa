"""The resources that every asset, check and sensor shares, and how runs are executed.

Spark's settings stand here, in one place: the `pyspark` resource never starts a session for a stream, its settings
go to each driver. What it starts one for is the comparison of keys.
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
    """Bind the resources."""
    pyspark = StageSparkResource(spark_config={})
    return dg.Definitions(
        resources={
            "pyspark": pyspark,
            "stream_runner": LocalStreamRunner(pyspark=pyspark, state=str(state_folder())),
            "kafka": KafkaResource(),
            "clickhouse": ClickHouseResource(),
            "alerts": AlertResource(),
        },
        # A health check is two short steps; a process for each would take twenty times as long as the steps.
        executor=dg.in_process_executor,
    )
