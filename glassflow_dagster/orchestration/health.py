"""Reads the state of a pipeline for a health check: its stream, topics, table and ledger.

An unreachable server does not fail the health check: its error takes the place of the value, the driver retries by
itself, and the asset checks fail with the reason.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from glassflow_dagster.control.status import StreamStatus
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals, read_totals
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.table import Table, find_table
from glassflow_dagster.stores.kafka.topic_pattern import matching_topics
from glassflow_dagster.stores.kafka.topics import Offsets, offsets

Value = TypeVar("Value")


@dataclass(frozen=True)
class Health:
    """The state of a pipeline; a value that could not be read is replaced by its error.

    topics: topic -> partition -> offsets. table: None when it does not exist.
    """

    status: StreamStatus
    topics: dict[str, dict[int, Offsets] | GlassflowError]
    tables: tuple[Table | GlassflowError | None, ...]
    ledger: LedgerTotals | GlassflowError


def examine(config: PipelineConfig, status: StreamStatus) -> Health:
    """Read the topics' offsets from Kafka, and the table and the ledger's sums from ClickHouse."""
    tables, ledger = _tables_and_ledger(config)
    return Health(status=status, topics=_topics(config), tables=tables, ledger=ledger)


def _topics(config: PipelineConfig) -> dict[str, dict[int, Offsets] | GlassflowError]:
    """Return the offsets of the topics, of a pattern those that match now; or the error, by the pattern."""
    pattern, topics = config.source.topic_pattern, config.source_topics
    if pattern:
        try:
            topics = matching_topics(config)
        except GlassflowError as error:
            return {pattern: error}
    return {topic: _value_or_error(partial(offsets, config.connection, topic)) for topic in topics}


def _tables_and_ledger(
    config: PipelineConfig,
) -> tuple[tuple[Table | GlassflowError | None, ...], LedgerTotals | GlassflowError]:
    """Return the pipeline's tables (None for one that does not exist) and the sums over its ledger, or their errors."""
    connection, names = config.sink.connection_params, [sink.full_table for sink in config.sink.by_table]
    try:
        client = connect(connection)
    except GlassflowError as error:
        return (error,) * len(names), error
    with client:
        return (
            tuple(_value_or_error(partial(find_table, client, *name)) for name in names),
            _value_or_error(lambda: read_totals(client, connection.database, config.pipeline_id)),
        )


def _value_or_error(read: Callable[[], Value]) -> Value | GlassflowError:
    """Call a function and return its value, or the `GlassflowError` that it raises."""
    try:
        return read()
    except GlassflowError as error:
        return error
