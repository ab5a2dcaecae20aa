"""Heartbeats of drivers in ClickHouse, where every host sees them: beside the file on the driver's own host.

A driver inserts one every few seconds, and a last one when it ends. Their age is judged by ClickHouse's clock alone, so
that it does not matter whether the hosts' clocks agree.
"""

import json
import socket
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.stores.bookkeeping.fencing import Epoch
from glassflow_dagster.stores.bookkeeping.schema import EXPIRES_AT, PIPELINE_ID, BookkeepingTable, Column
from glassflow_dagster.stores.clickhouse.identifiers import quote_name
from glassflow_dagster.stores.clickhouse.names import has_table
from glassflow_dagster.stores.clickhouse.queries import fetch, to_glassflow_error

DRIVERS = BookkeepingTable(
    "glassflow_drivers",
    (
        PIPELINE_ID,
        Column("epoch", "UInt64"),
        Column("driver", "UUID"),
        Column("host", "String"),
        Column("folder", "String"),
        Column("wanted", "Bool"),
        Column("heartbeat", "String"),
        EXPIRES_AT,
    ),
    order_by="(pipeline_id, epoch, driver, inserted_at)",
    ttl="expires_at",
)

# Only a driver's newest heartbeat is read. The older ones show for a day what it did.
_KEPT_SECONDS = 24 * 3600
# The last heartbeat of a driver that has ended: until then other hosts know why.
_LAST_KEPT_SECONDS = 90 * 24 * 3600


@dataclass(frozen=True)
class DriverReport:
    """The newest heartbeat of a pipeline's newest driver.

    host, folder: where it runs, and its state folder there.
    wanted: whether that host starts it again when it has failed.
    heartbeat: JSON of `control.heartbeat.Heartbeat`.
    age: seconds since it was inserted, by ClickHouse's clock.
    """

    epoch: int
    driver: str
    host: str
    folder: str
    wanted: bool
    heartbeat: str
    age: float


def insert_report(  # noqa: PLR0913 - the columns of a row
    client: Client, epoch: Epoch, folder: str, heartbeat: str, *, wanted: bool, is_last: bool
) -> None:
    """Insert a driver's heartbeat; see `DriverReport`. is_last: the driver ends. Raises what `fetch` raises.

    Without an insert token: a row that is there twice does no harm.
    """
    table = DRIVERS.full_name(epoch.database)
    row = {
        "pipeline_id": epoch.pipeline_id,
        "epoch": epoch.number,
        "driver": epoch.driver,
        "host": socket.gethostname(),
        "folder": folder,
        "wanted": wanted,
        "heartbeat": heartbeat,
    }
    kept = _LAST_KEPT_SECONDS if is_last else _KEPT_SECONDS
    sent = [column for column in DRIVERS.columns if column.name in row]
    columns = ", ".join(quote_name(column.name) for column in sent)
    # In the body of the request, as a heartbeat with many partitions is too long for a URL. `input` adds the column
    # that follows the server's clock.
    structure = ", ".join(f"{column.name} {column.type}" for column in sent)
    statement = (
        f"INSERT INTO {table} ({columns}, `expires_at`) SETTINGS async_insert = 0 "
        f"SELECT {columns}, now() + {kept} FROM input('{structure}') FORMAT JSONEachRow"
    )
    try:
        client.command(statement, data=json.dumps(row))
    except (ClickHouseError, OSError) as error:
        raise to_glassflow_error(client, error) from error


def newest_epochs(client: Client, database: str, pipeline_id: str, submission: str) -> tuple[int, int]:
    """Return the newest epoch of a submission's drivers, and of all drivers of a pipeline; 0 where there is none.

    submission: of the drivers by their launcher, as in their heartbeats. Raises what `fetch` raises.
    """
    if not has_table(client, database, DRIVERS.name):
        return 0, 0
    [row] = fetch(
        client,
        "SELECT maxIf(epoch, JSONExtractString(heartbeat, 'submission') = {submission:String}), max(epoch) "
        f"FROM {DRIVERS.full_name(database)} WHERE pipeline_id = {{pipeline:String}}",
        {"pipeline": pipeline_id, "submission": submission},
    )
    own, newest = row
    return own, newest


def newest_report(client: Client, database: str, pipeline_id: str) -> DriverReport | None:
    """Return the newest heartbeat of a pipeline's newest driver; None where there is none, or no such table.

    Raises what `fetch` raises.
    """
    if not has_table(client, database, DRIVERS.name):
        return None
    rows = fetch(
        client,
        "SELECT epoch, toString(driver), host, folder, wanted, heartbeat, "
        f"greatest(0, dateDiff('millisecond', inserted_at, now64(3))) / 1000 FROM {DRIVERS.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} "
        "ORDER BY pipeline_id DESC, epoch DESC, driver DESC, inserted_at DESC LIMIT 1",
        {"pipeline": pipeline_id},
    )
    return DriverReport(*rows[0]) if rows else None
