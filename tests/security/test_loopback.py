"""Everything that the project starts listens on loopback addresses only."""

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tests.security.sockets import elsewhere, listening
from tests.servers.stack import Stack
from tests.support.processes import descendants


def test_the_stack_and_spark_listen_on_loopback_only(stack: Stack, spark: SparkSession) -> None:
    def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    # Sockets that are opened for the first Python worker, and for the first batch of a stream.
    assert spark.range(3).mapInArrow(as_they_are, "id long").count() == 3
    ensure_callback_server_started(spark.sparkContext._gateway)
    # Other children of this process are servers of other tests, for which their hosts have addresses of their own.
    parents = (spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid(), *stack.pids)
    found = listening([os.getpid(), *(pid for parent in parents for pid in (parent, *descendants(parent)))])
    ports = {int(address.partition(":")[2], 16) for address in found}
    assert {stack.kafka_port, stack.clickhouse_port} <= ports
    assert sum("org.apache.spark" in owner for owner in found.values()) >= 3  # py4j, driver, block manager
    assert sum("kafka.Kafka" in owner for owner in found.values()) >= 2  # broker, controller
    assert elsewhere(found) == {}
