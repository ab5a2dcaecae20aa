"""Runs Spark's JVM as a child of this process, and ends it with all processes that it has started."""

import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from glassflow_dagster.driver.failures import spark_failures, stream_failures
from glassflow_dagster.driver.lock import PipelineLock
from glassflow_dagster.driver.log import DriverLog
from glassflow_dagster.driver.output_pipe import reading_lines
from glassflow_dagster.streaming.spark.session import SPARK_SCRATCH, java, start_session, stop_session


@contextmanager
def running_jvm(
    name: str, folder: Path, settings: Mapping[str, str], lock: PipelineLock, log: DriverLog
) -> Iterator[SparkSession]:
    """Start a Spark session for the block; afterwards stop it and kill all its processes, however the block ends.

    name: the application's. folder: for Spark's log and working files. lock: marks the processes. Raises
    `GlassflowError` when the JVM dies, and for exceptions of Spark's in the block.
    """
    with _jvm_output(log) as output:
        try:
            with spark_failures(folder):
                spark = _start(name, folder, settings, lock, log, output)
                try:
                    with stream_failures():
                        yield spark
                finally:
                    stop_session(spark)
        finally:
            _end_processes(folder, lock)


def jvm_pid(spark: SparkSession) -> int:
    """Return the process id of Spark's JVM."""
    return int(java(spark).ProcessHandle.current().pid())


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Restore the handler of Ctrl-C after the block: Spark's own, set with a context, cancels the running batch."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def _start(  # noqa: PLR0913, PLR0917 - the parts of a session and of its processes
    name: str, folder: Path, settings: Mapping[str, str], lock: PipelineLock, log: DriverLog, output: int | None
) -> SparkSession:
    """Start the session, its processes marked in the lock as this process's.

    output: the file descriptor that they print to; None for this process's stdout and stderr.
    """
    # A process that was killed leaves its state stores' working copies behind.
    shutil.rmtree(folder / SPARK_SCRATCH, ignore_errors=True)
    with kept_interrupts(), lock.marking():
        spark = start_session(name, folder, settings, log, output)
    lock.remember_jvm(jvm_pid(spark))
    return spark


def _jvm_output(log: DriverLog) -> AbstractContextManager[int | None]:
    """Return the file descriptor for the JVM's stdout and stderr: a pipe to the log, or None for this process's own."""
    return reading_lines(log.relay) if log.takes_jvm_output else nullcontext()


def _end_processes(folder: Path, lock: PipelineLock) -> None:
    """Kill the processes that this one has started, and remove their scratch files."""
    # The JVM may not end by itself: it waits for RocksDB's threads, and one of them that is about to log waits for the
    # JVM. It would keep its memory and hold this process's output open.
    lock.end_started()
    shutil.rmtree(folder / SPARK_SCRATCH, ignore_errors=True)
