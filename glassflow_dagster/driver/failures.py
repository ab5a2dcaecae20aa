"""Turns the failures of a running driver (of Spark, of its query, of the disk) into errors that a person can read."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from glassflow_dagster.bookkeeping.fencing import Epoch, Fenced
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.streaming.checkpoint.consistency import require_topics, wait_for_topics
from glassflow_dagster.streaming.spark.session import SPARK_LOG
from glassflow_dagster.streaming.spark.spark_errors import explain_failure, may_lack_records


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
def spark_failures(folder: Path) -> Iterator[None]:
    """Turn the loss of Spark's JVM during the block into a `GlassflowError`.

    folder: the pipeline's state folder, which has Spark's log.
    """
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        raise GlassflowError(
            f"Spark's JVM ended ({type(error).__name__}): it was killed, or ran out of memory (raise "
            f"spark.driver.memory); see {folder / SPARK_LOG}; start the pipeline again; it replays the batch"
        ) from error


@contextmanager
def stream_failures() -> Iterator[None]:
    """Turn an exception that Spark raises in the block into a `GlassflowError` that explains it."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise GlassflowError(explain_failure(error)) from error


def query_failure(
    error: StreamingQueryException, config: PipelineConfig, checkpoint: Checkpoint, epoch: Epoch, client: Client
) -> GlassflowError:
    """Return the error that ended a query: a newer driver, records that Kafka no longer has, or Spark's own reason.

    ClickHouse and Kafka are asked for the details that Spark's text lacks; when they do not answer, the text is used.
    """
    if Fenced.__name__ in str(error) and (fenced := _find_newer_driver(epoch, client)):
        # Raised in a Python worker, it arrives as text only; the query returns it as an exception with all details.
        return fenced
    if may_lack_records(error) and (lost := _find_lost_records(config, checkpoint)):
        return lost
    return GlassflowError(explain_failure(error))


def _find_newer_driver(epoch: Epoch, client: Client) -> GlassflowError | None:
    """Return the error that names the driver that has fenced this one off.

    None where no driver has, or ClickHouse does not answer.
    """
    with suppress(ClickHouseError, OSError):
        try:
            epoch.require_newest(client)
        except GlassflowError as error:
            return error
    return None


def _find_lost_records(config: PipelineConfig, checkpoint: Checkpoint) -> CheckpointError | None:
    """Return the error that names a topic or unread offsets that Kafka no longer has.

    None if none are missing, and if Kafka does not answer.
    """
    try:
        # The first finds a deleted topic, the second a recreated one, and offsets that are gone.
        wait_for_topics(config, checkpoint, patience=0, report=_ignore, report_waiting=_ignore)
        require_topics(config, checkpoint)
    except CheckpointError as problem:
        return problem
    except GlassflowError:
        return None
    return None


def _ignore(_: str) -> None:
    """Discard a progress message: only the result of the check is wanted."""
