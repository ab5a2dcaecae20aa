"""What the failures of a running driver say to a person: Spark's, of a query, of the disk."""

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
    """Raise `GlassflowError` that names the file, where the block fails to read or write one."""
    try:
        yield
    except OSError as error:
        raise GlassflowError(
            f"{error.filename or folder}: {error.strerror or error}; make room, or fix the disk or the rights, then "
            "start the pipeline again"
        ) from error


@contextmanager
def spark_failures(folder: Path) -> Iterator[None]:
    """Raise `GlassflowError` where Spark's JVM is gone. folder: the pipeline's, which has Spark's log."""
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        raise GlassflowError(
            f"Spark's JVM ended ({type(error).__name__}): killed, or out of memory, where a larger "
            f"spark.driver.memory helps; {folder / SPARK_LOG} may say more; start the pipeline again, the "
            "batch will be replayed"
        ) from error


@contextmanager
def stream_failures() -> Iterator[None]:
    """Raise `GlassflowError` that explains what Spark raises in the block."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise GlassflowError(explain_failure(error)) from error


def query_failure(
    error: StreamingQueryException, config: PipelineConfig, checkpoint: Checkpoint, epoch: Epoch, client: Client
) -> GlassflowError:
    """Return what ended a query: a newer driver, records that Kafka no longer has, or what Spark says.

    Kafka and ClickHouse are asked where Spark's text says less than they can; without an answer the text has to do.
    """
    if Fenced.__name__ in str(error) and (fenced := _find_newer_driver(epoch, client)):
        # Raised in a worker, it is a text by now; asked again, it is itself.
        return fenced
    if may_lack_records(error) and (lost := _find_lost_records(config, checkpoint)):
        return lost
    return GlassflowError(explain_failure(error))


def _find_newer_driver(epoch: Epoch, client: Client) -> GlassflowError | None:
    """Return the error that names the driver that has fenced this one off; None where ClickHouse cannot tell."""
    with suppress(ClickHouseError, OSError):
        try:
            epoch.require_newest(client)
        except GlassflowError as error:
            return error
    return None


def _find_lost_records(config: PipelineConfig, checkpoint: Checkpoint) -> CheckpointError | None:
    """Return the error that names the topic and the offsets that Spark has missed; None where Kafka cannot tell."""
    try:
        wait_for_topics(config, checkpoint, 0, _ignore, _ignore)
        require_topics(config, checkpoint)
    except CheckpointError as problem:
        return problem
    except GlassflowError:
        return None
    return None


def _ignore(_: str) -> None:
    """Take a text that nobody is told: the question is asked for its answer alone."""
