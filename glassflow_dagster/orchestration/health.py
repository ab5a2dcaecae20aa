"""Reads the state of a pipeline for a health check: its stream, topics, table and ledger.

An unreachable server does not fail the health check: its error takes the place of the value, the driver retries by
itself, and the asset checks fail with the reason.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from glassflow_dagster.bookkeeping.totals import LedgerTotals
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.process import StreamStatus
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.topics import Offsets
from glassflow_dagster.resources.clickhouse import ClickHouseResource
from glassflow_dagster.resources.kafka import KafkaResource

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


def examine(
    config: PipelineConfig, status: StreamStatus, kafka: KafkaResource, clickhouse: ClickHouseResource
) -> Health:
    """Read the topics' offsets from Kafka, and the table and the ledger's sums from ClickHouse."""
    return Health(
        status=status,
        topics={source.topic: _value_or_error(partial(kafka.offsets, source)) for source in config.inputs},
        table=_value_or_error(lambda: clickhouse.table(config)),
        ledger=_value_or_error(lambda: clickhouse.totals(config)),
    )


def _value_or_error(read: Callable[[], Value]) -> Value | GlassflowError:
    """Call a function and return its value, or the `GlassflowError` that it raises."""
    try:
        return read()
    except GlassflowError as error:
        return error
