"""Turns the failures of Spark and of the disk in a running driver into errors that a person can read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.spark.session import SPARK_LOG
from glassflow_dagster.stream.spark.spark_errors import MORE_MEMORY, explain_failure


@contextmanager
def disk_failures(folder: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `GlassflowError` that names the file."""
    try:
        yield
    except OSError as error:
        raise GlassflowError(
            f"{error.filename or folder}: {error.strerror or error}; free disk space, or fix the disk or the "
            "permissions, then start the pipeline again"
        ) from error


@contextmanager
def spark_failures(folder: Path, more_memory: Callable[[], str] = lambda: MORE_MEMORY) -> Iterator[None]:
    """Turn the loss of Spark's JVM during the block into a `GlassflowError`.

    folder: that of Spark's log.
    more_memory: returns how the JVM gets some; it is called when the JVM is lost.
    """
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        raise GlassflowError(
            f"Spark's JVM ended ({type(error).__name__}): it was killed, or ran out of memory (then {more_memory()}); "
            f"see {folder / SPARK_LOG}; start the pipeline again; it replays the batch"
        ) from error


@contextmanager
def stream_failures(more_memory: Callable[[], str] = lambda: MORE_MEMORY) -> Iterator[None]:
    """Turn an exception that Spark raises in the block into a `GlassflowError` that explains it.

    more_memory: as of `spark_failures`.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise GlassflowError(explain_failure(error, more_memory=more_memory())) from error
