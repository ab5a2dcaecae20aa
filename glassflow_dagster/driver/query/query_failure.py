"""Turns the failure of a query into an error that a person can read."""

from collections.abc import Callable
from contextlib import suppress

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from pyspark.errors import StreamingQueryException

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.start.open_checkpoint import OpenCheckpoint
from glassflow_dagster.errors import Fenced, GlassflowError
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.stream.checkpoint.consistency import require_topics, wait_for_topics
from glassflow_dagster.stream.spark.spark_errors import explain_failure, is_conflict, may_lack_records


class CheckpointConflict(GlassflowError):
    """An older driver, whose inserts are refused by now, has written to the checkpoint: it is to be read again."""


def query_failure(
    error: StreamingQueryException,
    config: PipelineConfig,
    opened: OpenCheckpoint,
    client: Client,
    more_memory: Callable[[], str],
) -> GlassflowError:
    """Return the error that ended a query: a newer driver, records that Kafka no longer has, or Spark's own reason.

    `CheckpointConflict` where an older driver has written the checkpoint meanwhile.

    more_memory: returns how Spark's JVM gets some.
    ClickHouse and Kafka are asked for the details that Spark's text lacks; when they do not answer, the text is used.
    """
    if Fenced.__name__ in str(error) and (fenced := _find_newer_driver(opened, client)):
        # Raised in a Python worker, it arrives as text only; the query returns it as an exception with all details.
        return fenced
    if is_conflict(error):
        # In an object store, where a lock of this host does not keep out a driver of another one.
        return _find_newer_driver(opened, client) or CheckpointConflict(explain_failure(error))
    if may_lack_records(error) and (lost := _find_lost_records(config, opened.checkpoint)):
        return lost
    return GlassflowError(explain_failure(error, more_memory=more_memory()))


def _find_newer_driver(opened: OpenCheckpoint, client: Client) -> GlassflowError | None:
    """Return the error that names the driver that has fenced this one off, in ClickHouse or in the checkpoint.

    None where no driver has, or ClickHouse does not answer.
    """
    with suppress(ClickHouseError, OSError):
        try:
            opened.claim.require_newest()
            opened.epoch.require_newest(client)
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
