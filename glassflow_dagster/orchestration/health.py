"""What a health check finds: the stream, its topics, its table and its ledger, each asked once.

A server that cannot be reached is a finding too, not the end of the check: the driver retries by itself, and the
asset checks turn red with the reason.
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

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Health:
    """The state of a pipeline; where a question had no answer, the error that says why.

    topics: each input's topic, its partitions and their offsets.
    """

    status: StreamStatus
    topics: dict[str, dict[int, Offsets] | GlassflowError]
    table: Table | GlassflowError | None
    ledger: LedgerTotals | GlassflowError


def examine(
    config: PipelineConfig, status: StreamStatus, kafka: KafkaResource, clickhouse: ClickHouseResource
) -> Health:
    """Ask Kafka and ClickHouse how far the pipeline is."""
    return Health(
        status=status,
        topics={source.topic: _ask(partial(kafka.offsets, source)) for source in config.inputs},
        table=_ask(lambda: clickhouse.table(config)),
        ledger=_ask(lambda: clickhouse.totals(config)),
    )


def _ask(question: Callable[[], Answer]) -> Answer | GlassflowError:
    try:
        return question()
    except GlassflowError as error:
        return error
