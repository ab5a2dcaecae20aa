"""Gives a driver its Spark session: of a JVM of its own, or of a pool's."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.jvm import running_jvm
from glassflow_dagster.driver.lock import PipelineLock
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.pool.attach import attached_session, require_detached
from glassflow_dagster.kafka import kerberos
from glassflow_dagster.streaming.spark.python_workers import start_workers
from glassflow_dagster.streaming.spark.session import (
    DRIVER_JAVA_OPTIONS,
    SHUFFLE_PARTITIONS,
    SPARK_SCRATCH,
    WRITE_BUFFER,
    write_buffer_megabytes,
)


@contextmanager
def running_spark(run: RunContext, lock: PipelineLock) -> Iterator[SparkSession]:
    """Yield a Spark session for the block; afterwards its queries and processes have ended, however the block ends.

    It is a session of the pool that the options or the definition name, else of a JVM of this driver's own, which ends
    with it. Raises `GlassflowError` when the JVM dies, and for exceptions of Spark's in the block.
    """
    settings = spark_settings_of(run.config, run.options)
    pool = run.options.pool_of(run.config)
    if lock.last_pool and lock.last_pool != pool:
        require_detached(run.options.state, lock.last_pool, run.config.pipeline_id)
    with _pool_session(run, lock, pool, settings) if pool else _own_session(run, lock, settings) as spark:
        # By default a new state has as many partitions as tasks run at once.
        if SHUFFLE_PARTITIONS not in settings:
            spark.conf.set(SHUFFLE_PARTITIONS, str(spark.sparkContext.defaultParallelism))
        yield spark


@contextmanager
def _own_session(run: RunContext, lock: PipelineLock, settings: dict[str, str]) -> Iterator[SparkSession]:
    run.report_starting("starting Spark ...")
    with running_jvm(f"glassflow {run.config.pipeline_id}", run.folder, settings, lock, run.report) as spark:
        start_workers(spark)
        yield spark


@contextmanager
def _pool_session(run: RunContext, lock: PipelineLock, pool: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    run.report_starting(f"attaching to the pool {pool} ...")
    lock.remember_pool(pool)
    try:
        with attached_session(run.options.state, pool, run.config.pipeline_id, settings, run.report_starting) as spark:
            yield spark
    finally:
        shutil.rmtree(run.folder / SPARK_SCRATCH, ignore_errors=True)


def spark_settings_of(config: PipelineConfig, options: RunOptions) -> dict[str, str]:
    """Return a run's Spark settings: the definition's `resources` and Kerberos options for Kafka's client.

    The definition's `spark` overrides them, and the command line overrides both. In a pool, the cores are the pool's.
    """
    settings = {}
    has_own_jvm = options.pool_of(config) is None
    resources, kerberos_options = config.resources, kerberos.java_options(config.connection)
    # `cores` is a least number: Spark has a thread for each core of the machine anyway (local[*]).
    if has_own_jvm and resources and resources.cores and resources.cores > (os.cpu_count() or 1):
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
