"""Requests to stop a pipeline's driver, which it finds in ClickHouse, on whatever host it runs."""

import socket
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.schema import PIPELINE_ID, WRITE_EVERYWHERE, BookkeepingTable, Column
from glassflow_dagster.stores.clickhouse.names import has_table
from glassflow_dagster.stores.clickhouse.queries import fetch

# One row for each request; it is for the drivers up to an epoch, so that it does not stop the next one.
STOP_REQUESTS = BookkeepingTable(
    "glassflow_stop_requests",
    (PIPELINE_ID, Column("epoch", "UInt64"), Column("host", "String")),
    order_by="(pipeline_id, epoch)",
    settings=WRITE_EVERYWHERE,
)


@dataclass(frozen=True)
class StopRequests:
    """All requests to stop a pipeline's drivers: how many there are, and the newest driver that one is for."""

    count: int = 0
    epoch: int = 0


def request_stop(client: Client, database: str, pipeline_id: str, epoch: int) -> None:
    """Ask a pipeline's drivers up to an epoch to finish their batch and end; raises what `execute` raises."""
    row = {"pipeline_id": pipeline_id, "epoch": epoch, "host": socket.gethostname()}
    STOP_REQUESTS.insert_row(client, database, row)


def stop_requests(client: Client, database: str, pipeline_id: str) -> StopRequests:
    """Return the requests of a pipeline; raises what `fetch` raises. They are kept for ever."""
    if not has_table(client, database, STOP_REQUESTS.name):
        return StopRequests()
    [row] = fetch(
        client,
        f"SELECT count(), max(epoch) FROM {STOP_REQUESTS.full_name(database)} WHERE pipeline_id = {{pipeline:String}}",
        {"pipeline": pipeline_id},
    )
    return StopRequests(*row)


def stop_requester(client: Client, database: str, pipeline_id: str, epoch: int) -> str | None:
    """Return the host from which the driver of an epoch is asked to stop; None where it is not.

    Raises what `fetch` raises.
    """
    rows = fetch(
        client,
        f"SELECT host FROM {STOP_REQUESTS.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        "AND epoch >= {epoch:UInt64} ORDER BY inserted_at LIMIT 1",
        {"pipeline": pipeline_id, "epoch": epoch},
    )
    return rows[0][0] if rows else None
