"""Gives a driver its Spark session: of a JVM of its own, or of a pool's."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from glassflow_dagster.control.lock import PipelineLock
from glassflow_dagster.control.log import DriverLog
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.spark import allowed_settings
from glassflow_dagster.driver.jvm import launching_jvm, opened_session
from glassflow_dagster.driver.options import Report, RunOptions
from glassflow_dagster.driver.pool.attach import attached_session, require_detached
from glassflow_dagster.driver.pool.crashes import Member
from glassflow_dagster.stores.kafka.client import java_libraries, java_options
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.checkpoint.open_storage import open_storage
from glassflow_dagster.stream.scala.build import azure_jars
from glassflow_dagster.stream.spark.azure_storage import use_azure_storage
from glassflow_dagster.stream.spark.google_storage import google_storage_jars, use_google_storage
from glassflow_dagster.stream.spark.hdfs import use_hdfs
from glassflow_dagster.stream.spark.object_store import object_store_jars, use_object_store
from glassflow_dagster.stream.spark.session import (
    DRIVER_JAVA_OPTIONS,
    SHUFFLE_PARTITIONS,
    SPARK_SCRATCH,
    WRITE_BUFFER,
    SparkJvm,
    write_buffer_megabytes,
)


@dataclass(frozen=True)
class SparkStart:
    """The start of Spark for one run.

    folder: the pipeline's.
    launch: of the run's own JVM; None in a pool.
    """

    config: PipelineConfig
    options: RunOptions
    folder: Path
    lock: PipelineLock
    launch: Future[SparkJvm] | None

    @contextmanager
    def session(self, report: Report) -> Iterator[SparkSession]:
        """Yield the session for the block; afterwards its queries have ended, however the block ends.

        report: receives progress. Raises `GlassflowError` when the JVM does not start or dies, when the pool cannot be
        used, and for exceptions of Spark's in the block.
        """
        pool = self.options.pool_of(self.config)
        settings = spark_settings_of(self.config, self.options)
        with self._pool_session(pool, settings, report) if pool else self._own_session(report) as spark:
            # By default a new state has as many partitions as tasks run at once.
            if SHUFFLE_PARTITIONS not in settings:
                spark.conf.set(SHUFFLE_PARTITIONS, str(spark.sparkContext.defaultParallelism))
            state = self.config.state
            if state and state.is_s3:
                use_object_store(spark, state, self.folder / SPARK_SCRATCH)
            elif state and state.is_google:
                use_google_storage(spark, state, self.folder / SPARK_SCRATCH)
            elif state and state.is_azure:
                use_azure_storage(spark, state, self.folder / SPARK_SCRATCH)
            elif state and state.is_hdfs:
                use_hdfs(spark)
            yield spark

    @property
    def _member(self) -> Member:
        """The pipeline as one of a pool, whose checkpoint is in a folder."""
        name = self.config.pipeline_id
        return Member(name, Checkpoint(open_storage(self.config.state, self.folder, name)).folder)

    @contextmanager
    def _own_session(self, report: Report) -> Iterator[SparkSession]:
        assert self.launch
        report("starting Spark ...")
        with opened_session(self.launch, self.folder, self.lock) as spark:
            yield spark

    @contextmanager
    def _pool_session(self, pool: str, settings: dict[str, str], report: Report) -> Iterator[SparkSession]:
        report(f"attaching to the pool {pool} ...")
        self.lock.remember_pool(pool)
        try:
            with attached_session(self.options.state, pool, self._member, settings, report) as spark:
                yield spark
        finally:
            shutil.rmtree(self.folder / SPARK_SCRATCH, ignore_errors=True)


@contextmanager
def starting_spark(
    config: PipelineConfig, options: RunOptions, folder: Path, lock: PipelineLock, log: DriverLog
) -> Iterator[SparkStart]:
    """Begin to start Spark: launch the run's own JVM on a thread, unless the run is in a pool.

    folder: the pipeline's. All processes that were started have ended after the block. Raises `GlassflowError` for a
    Spark setting that is not allowed, where Java or a jar is missing, and where an earlier pool still runs the query.
    """
    allowed_settings(options.spark, "--conf, or runner.spark_config of the component")
    pool = options.pool_of(config)
    if lock.last_pool and lock.last_pool != pool:
        require_detached(options.state, lock.last_pool, config.pipeline_id)
    if pool:
        yield SparkStart(config, options, folder, lock, launch=None)
        return
    settings = spark_settings_of(config, options)
    more_jars = java_libraries(config.connection, log)
    if config.state and config.state.is_s3:
        more_jars += object_store_jars(log)
    if config.state and config.state.is_google:
        more_jars += google_storage_jars(log)
    if config.state and config.state.is_azure:
        more_jars += azure_jars(log)
    with launching_jvm(f"glassflow {config.pipeline_id}", folder, settings, lock, log, more_jars) as launch:
        yield SparkStart(config, options, folder, lock, launch)


def spark_settings_of(config: PipelineConfig, options: RunOptions) -> dict[str, str]:
    """Return a run's Spark settings: the definition's `resources` and options for Kafka's client.

    The definition's `spark` overrides them, and the command line overrides both. In a pool, the cores are the pool's.
    """
    settings = {}
    has_own_jvm = options.pool_of(config) is None
    resources, kafka_options = config.resources, java_options(config.connection)
    # `cores` is a least number: Spark has a thread for each core of the machine anyway (local[*]).
    if has_own_jvm and resources and resources.cores and resources.cores > (os.cpu_count() or 1):
        settings["spark.master"] = f"local[{resources.cores}]"
    if resources and resources.state_partitions:
        settings[SHUFFLE_PARTITIONS] = str(resources.state_partitions)
    if kafka_options:
        settings |= {DRIVER_JAVA_OPTIONS: kafka_options, "spark.executor.extraJavaOptions": kafka_options}
    return {**settings, **config.spark, **options.spark}


def shuffle_partitions(spark: SparkSession) -> int:
    """Return the session's number of shuffle partitions, which is that of the partitions of a new state."""
    return int(str(spark.conf.get(SHUFFLE_PARTITIONS)))


def fit_to_state(spark: SparkSession, partitions: int, settings: dict[str, str]) -> None:
    """Set the shuffle partitions to those of the checkpoint's state, and RocksDB's write buffer to match.

    partitions: fixed when the state was created, whatever cores and settings there are now.
    settings: those of `spark_settings_of`; a write buffer size among them is kept.
    """
    # The shards of the keys (stream/scala/state/Shards.scala) depend on the number of partitions, too.
    spark.conf.set(SHUFFLE_PARTITIONS, str(partitions))
    if WRITE_BUFFER not in settings:
        spark.conf.set(WRITE_BUFFER, str(write_buffer_megabytes(partitions)))
