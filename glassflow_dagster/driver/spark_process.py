"""Spark's JVM and Python workers of one driver: started as the driver's own, and ended with it."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.failures import spark_failures, stream_failures
from glassflow_dagster.driver.lock import PipelineLock
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.kafka import kerberos
from glassflow_dagster.streaming.spark.python_workers import start_workers
from glassflow_dagster.streaming.spark.session import (
    DRIVER_JAVA_OPTIONS,
    SHUFFLE_PARTITIONS,
    SPARK_SCRATCH,
    WRITE_BUFFER,
    java,
    start_session,
    stop_session,
    write_buffer_megabytes,
)


@contextmanager
def running_spark(run: RunContext, lock: PipelineLock) -> Iterator[SparkSession]:
    """Start a session for the block, and end Spark with all its processes behind it, however the block ends.

    Raises `GlassflowError` for a JVM that dies, and for what Spark raises in the block.
    """
    try:
        with spark_failures(run.folder):
            spark = _start(run, lock)
            try:
                with stream_failures():
                    yield spark
            finally:
                stop_session(spark)
    finally:
        # Left to itself the JVM may never end: on its way out it waits for RocksDB's threads, and one of them that has
        # something to log just then waits for it. It would keep its memory, and this process's output open.
        lock.end_started()
        shutil.rmtree(run.folder / SPARK_SCRATCH, ignore_errors=True)


def spark_settings_of(config: PipelineConfig, options: RunOptions) -> dict[str, str]:
    """Return what the definition means for Spark; settings of the command line go before."""
    settings = {}
    resources, kerberos_options = config.resources, kerberos.java_options(config.connection)
    if resources and resources.cores and resources.cores > (os.cpu_count() or 1):
        settings["spark.master"] = f"local[{resources.cores}]"
    if resources and resources.state_partitions:
        settings[SHUFFLE_PARTITIONS] = str(resources.state_partitions)
    if kerberos_options:
        settings |= {DRIVER_JAVA_OPTIONS: kerberos_options, "spark.executor.extraJavaOptions": kerberos_options}
    return {**settings, **config.spark, **options.spark}


def shuffle_partitions(spark: SparkSession) -> int:
    """Return the number of partitions that a new state gets."""
    return int(str(spark.conf.get(SHUFFLE_PARTITIONS)))


def fit_to_state(spark: SparkSession, partitions: int, settings: dict[str, str]) -> None:
    """Set what depends on the partitions that the state was made with, whatever cores and settings there are now.

    settings: those of `spark_settings_of`, of which a size of the write buffer goes before.
    """
    # The shards of keys depend on it, too.
    spark.conf.set(SHUFFLE_PARTITIONS, str(partitions))
    if WRITE_BUFFER not in settings:
        spark.conf.set(WRITE_BUFFER, str(write_buffer_megabytes(partitions)))


def jvm_pid(spark: SparkSession) -> int:
    """Return the process id of Spark's JVM."""
    return int(java(spark).ProcessHandle.current().pid())


def _start(run: RunContext, lock: PipelineLock) -> SparkSession:
    run.report_starting("starting Spark ...")
    # Spark's own reaction to Ctrl-C would cancel the running batch; it is put in place when the context starts.
    handler = signal.getsignal(signal.SIGINT)
    # A driver that was killed leaves its state stores' working copies behind.
    shutil.rmtree(run.folder / SPARK_SCRATCH, ignore_errors=True)
    settings = spark_settings_of(run.config, run.options)
    with lock.marking():
        spark = start_session(f"glassflow {run.config.pipeline_id}", run.folder, settings, run.report)
    signal.signal(signal.SIGINT, handler)
    lock.remember_jvm(jvm_pid(spark))
    if SHUFFLE_PARTITIONS not in settings:
        spark.conf.set(SHUFFLE_PARTITIONS, str(spark.sparkContext.defaultParallelism))
    start_workers(spark)
    return spark
