"""Starts Spark's JVM and Python workers for one driver, and ends them with it."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.failures import spark_failures, stream_failures
from glassflow_dagster.driver.lock import PipelineLock
from glassflow_dagster.driver.log import DriverLog
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.output_pipe import reading_lines
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
    """Start a Spark session for the block; afterwards stop it and kill all its processes, however the block ends.

    Raises `GlassflowError` when the JVM dies, and for exceptions of Spark's in the block.
    """
    with _jvm_output(run.report) as output:
        try:
            with spark_failures(run.folder):
                spark = _start(run, lock, output)
                try:
                    with stream_failures():
                        yield spark
                finally:
                    stop_session(spark)
        finally:
            _end_processes(run, lock)


def spark_settings_of(config: PipelineConfig, options: RunOptions) -> dict[str, str]:
    """Return a run's Spark settings: the definition's `resources` and Kerberos options for Kafka's client.

    The definition's `spark` overrides them, and the command line overrides both.
    """
    settings = {}
    resources, kerberos_options = config.resources, kerberos.java_options(config.connection)
    # `cores` is a least number: Spark has a thread for each core of the machine anyway (local[*]).
    if resources and resources.cores and resources.cores > (os.cpu_count() or 1):
        settings["spark.master"] = f"local[{resources.cores}]"
    if resources and resources.state_partitions:
        settings[SHUFFLE_PARTITIONS] = str(resources.state_partitions)
    if kerberos_options:
        settings |= {DRIVER_JAVA_OPTIONS: kerberos_options, "spark.executor.extraJavaOptions": kerberos_options}
    return {**settings, **config.spark, **options.spark}


def shuffle_partitions(spark: SparkSession) -> int:
    """Return the session's number of shuffle partitions, which is that of the partitions of a new state."""
    return int(str(spark.conf.get(SHUFFLE_PARTITIONS)))


def fit_to_state(spark: SparkSession, partitions: int, settings: dict[str, str]) -> None:
    """Set the shuffle partitions to those of the checkpoint's state, and RocksDB's write buffer to match.

    partitions: fixed when the state was created, whatever cores and settings there are now. settings: those of
    `spark_settings_of`; a write buffer size among them is kept.
    """
    # The shards of the keys (scala/state/Shards.scala) depend on the number of partitions, too.
    spark.conf.set(SHUFFLE_PARTITIONS, str(partitions))
    if WRITE_BUFFER not in settings:
        spark.conf.set(WRITE_BUFFER, str(write_buffer_megabytes(partitions)))


def jvm_pid(spark: SparkSession) -> int:
    """Return the process id of Spark's JVM."""
    return int(java(spark).ProcessHandle.current().pid())


def _start(run: RunContext, lock: PipelineLock, output: int | None) -> SparkSession:
    """Start the session and its Python workers, marked in the lock as processes of this driver.

    output: the file descriptor that they print to; None for this process's stdout and stderr.
    """
    run.report_starting("starting Spark ...")
    # Starting the context installs Spark's own handler for Ctrl-C, which would cancel the running batch.
    handler = signal.getsignal(signal.SIGINT)
    # A driver that was killed leaves its state stores' working copies behind.
    shutil.rmtree(run.folder / SPARK_SCRATCH, ignore_errors=True)
    settings = spark_settings_of(run.config, run.options)
    with lock.marking():
        spark = start_session(f"glassflow {run.config.pipeline_id}", run.folder, settings, run.report, output)
    signal.signal(signal.SIGINT, handler)
    lock.remember_jvm(jvm_pid(spark))
    # By default a new state has as many partitions as tasks run at once.
    if SHUFFLE_PARTITIONS not in settings:
        spark.conf.set(SHUFFLE_PARTITIONS, str(spark.sparkContext.defaultParallelism))
    start_workers(spark)
    return spark


def _jvm_output(log: DriverLog) -> AbstractContextManager[int | None]:
    """Return the file descriptor for the JVM's stdout and stderr: a pipe to the log, or None for this process's own."""
    return reading_lines(log.relay) if log.takes_jvm_output else nullcontext()


def _end_processes(run: RunContext, lock: PipelineLock) -> None:
    """Kill the processes that this driver has started, and remove their scratch files."""
    # The JVM may not end by itself: it waits for RocksDB's threads, and one of them that is about to log waits for the
    # JVM. It would keep its memory and hold this process's output open.
    lock.end_started()
    shutil.rmtree(run.folder / SPARK_SCRATCH, ignore_errors=True)
