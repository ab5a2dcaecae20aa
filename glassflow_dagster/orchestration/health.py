"""Reads the state of a pipeline for a health check: its stream, topics, table and ledger.

An unreachable server does not fail the health check: its error takes the place of the value, the driver retries by
itself, and the asset checks fail with the reason.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.bookkeeping.totals import LedgerTotals, read_totals
from glassflow_dagster.clickhouse.client import address, connect
from glassflow_dagster.clickhouse.errors import explain
from glassflow_dagster.clickhouse.tables import Table, find_table
from glassflow_dagster.config.model.connections import ClickHouseConnection
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.process import StreamStatus
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.topics import Offsets, offsets

Value = TypeVar("Value")


@dataclass(frozen=True)
class Health:
    """The state of a pipeline; a value that could not be read is replaced by its error.

    topics: topic -> partition -> offsets. table: None when it does not exist.
    """

    status: StreamStatus
    topics: dict[str, dict[int, Offsets] | GlassflowError]
    table: Table | GlassflowError | None
    ledger: LedgerTotals | GlassflowError


def examine(config: PipelineConfig, status: StreamStatus) -> Health:
    """Read the topics' offsets from Kafka, and the table and the ledger's sums from ClickHouse."""
    return Health(
        status=status,
        topics={
            source.topic: _value_or_error(partial(offsets, source.connection_params, source.topic))
            for source in config.inputs
        },
        table=_value_or_error(lambda: _table(config)),
        ledger=_value_or_error(lambda: _totals(config)),
    )


def _table(config: PipelineConfig) -> Table | None:
    """Return the pipeline's table, None when it does not exist; raises `GlassflowError` when ClickHouse fails."""
    with _client(config.sink.connection_params) as client:
        return find_table(client, *config.sink.full_table)


def _totals(config: PipelineConfig) -> LedgerTotals:
    """Return the sums over the pipeline's ledger; raises `GlassflowError` when ClickHouse fails."""
    connection = config.sink.connection_params
    with _client(connection) as client:
        return read_totals(client, connection.database, config.pipeline_id)


@contextmanager
def _client(connection: ClickHouseConnection) -> Iterator[Client]:
    """Yield a client; convert its errors to `GlassflowError`."""
    client = connect(connection)
    try:
        yield client
    except (ClickHouseError, OSError) as error:
        raise GlassflowError(f"ClickHouse at {address(connection)}: {explain(error)}") from error
    finally:
        client.close()


def _value_or_error(read: Callable[[], Value]) -> Value | GlassflowError:
    """Call a function and return its value, or the `GlassflowError` that it raises."""
    try:
        return read()
    except GlassflowError as error:
        return error
