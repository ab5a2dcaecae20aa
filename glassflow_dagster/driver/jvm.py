"""Runs Spark's JVM as a child of this process, and ends it with all processes that it has started."""

import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from glassflow_dagster.control.lock import PipelineLock
from glassflow_dagster.control.log import DriverLog
from glassflow_dagster.driver.failures import spark_failures, stream_failures
from glassflow_dagster.driver.output_pipe import reading_lines
from glassflow_dagster.stream.spark.session import SPARK_SCRATCH, SparkJvm, java, prepare_jvm, stop_session

# The driver's calls to the JVM, one a second, take milliseconds. A long garbage collection is shorter than this.
JVM_SILENCE = 30.0  # seconds
_POLL_SECONDS = 0.05


@contextmanager
def launching_jvm(  # noqa: PLR0913, PLR0917 - what a JVM is launched with
    name: str,
    folder: Path,
    settings: Mapping[str, str],
    lock: PipelineLock,
    log: DriverLog,
    more_jars: Sequence[Path] = (),
) -> Iterator[Future[SparkJvm]]:
    """Launch Spark's JVM on a thread, for the block; afterwards kill all its processes, however the block ends.

    name: the application's.
    folder: for Spark's log and working files.
    lock: marks the processes.
    more_jars: beside those of every driver.
    The yielded future raises `GlassflowError` when the JVM does not start.
    Raises `GlassflowError` where Java or a jar is missing: the thread itself waits for nothing but the JVM, so that its
    end ends the thread.
    """
    prepared = prepare_jvm(name, folder, settings, log, more_jars)
    # A process that was killed leaves its state stores' working copies behind.
    shutil.rmtree(folder / SPARK_SCRATCH, ignore_errors=True)
    with _jvm_output(log) as output, ThreadPoolExecutor(1, "jvm") as background:
        launch = background.submit(_launch, prepared, lock, output)
        try:
            yield launch
        finally:
            _end_processes(folder, lock, launch)


@contextmanager
def opened_session(launch: Future[SparkJvm], folder: Path, lock: PipelineLock) -> Iterator[SparkSession]:
    """Open the session of a JVM for the block; afterwards stop it.

    launch, folder: of `launching_jvm`. Raises `GlassflowError` when the JVM does not start or dies, and for exceptions
    of Spark's in the block.
    """
    with spark_failures(folder):
        with kept_interrupts():
            spark = launch.result().open_session()
        lock.remember_jvm(jvm_pid(spark))
        try:
            with stream_failures():
                yield spark
        finally:
            stop_session(spark)


def jvm_pid(spark: SparkSession) -> int:
    """Return the process id of Spark's JVM."""
    return int(java(spark).ProcessHandle.current().pid())


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Restore the handler of Ctrl-C after the block: Spark's own, set with a context, cancels the running batch."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def _launch(prepared: SparkJvm, lock: PipelineLock, output: int | None) -> SparkJvm:
    """Launch the JVM, its processes marked in the lock as this process's.

    output: the file descriptor that they print to; None for this process's stdout and stderr.
    """
    with lock.marking():
        return prepared.launch(output)


def _jvm_output(log: DriverLog) -> AbstractContextManager[int | None]:
    """Return the file descriptor for the JVM's stdout and stderr: a pipe to the log, or None for this process's own."""
    return reading_lines(log.relay) if log.takes_jvm_output else nullcontext()


def _end_processes(folder: Path, lock: PipelineLock, launch: Future[SparkJvm]) -> None:
    """Kill the processes that this one has started, and remove their scratch files."""
    # A launch that goes on fails without its JVM, or has not started it yet.
    while not launch.done():
        lock.end_started()
        wait((launch,), _POLL_SECONDS)
    # The JVM may not end by itself: it waits for RocksDB's threads, and one of them that is about to log waits for the
    # JVM. It would keep its memory and hold this process's output open.
    lock.end_started()
    shutil.rmtree(folder / SPARK_SCRATCH, ignore_errors=True)
