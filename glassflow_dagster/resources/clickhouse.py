"""The Dagster resource that reads from ClickHouse; it never writes."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.bookkeeping.totals import LedgerTotals, read_totals
from glassflow_dagster.clickhouse.client import address, connect
from glassflow_dagster.clickhouse.errors import explain
from glassflow_dagster.clickhouse.tables import Table, find_table
from glassflow_dagster.config.model.connections import ClickHouseConnection
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError


class ClickHouseResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Reads a pipeline's table and ledger. Each pipeline definition has its own connection."""

    def table(self, config: PipelineConfig) -> Table | None:
        """Return the pipeline's table, None when it does not exist; raises `GlassflowError` when ClickHouse fails."""
        with _client(config.sink.connection_params) as client:
            return find_table(client, *config.sink.full_table)

    def totals(self, config: PipelineConfig) -> LedgerTotals:
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
