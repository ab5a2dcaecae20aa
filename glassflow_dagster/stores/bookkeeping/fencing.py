"""Fencing: only the newest driver of a pipeline may write; an older one, on whatever host, stops writing.

On one host a lock file keeps drivers apart. The lock does not detect a copy of the state folder, nor always a folder
that two hosts share, nor a second folder where the pipeline starts over. So every start of a driver inserts a row with
an epoch into ClickHouse, and before an insert the driver checks that no newer row exists. The result of a check is
valid for `CHECK_VALID_SECONDS`. A new driver waits as long before it writes, so every older driver has begun its last
insert by then. The exception: a process that is suspended between check and insert. The first driver of a pipeline has
no older one and does not wait.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.errors import Fenced
from glassflow_dagster.runtime.clocks import steady_seconds
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER
from glassflow_dagster.stores.bookkeeping.schema import (
    CHECKPOINT_ID,
    PIPELINE_ID,
    WRITE_EVERYWHERE,
    BookkeepingTable,
    Column,
)
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.server_run import require_one_server

# One row for each start of a driver; the driver with the greatest epoch may write.
EPOCHS = BookkeepingTable(
    "glassflow_epochs",
    (
        PIPELINE_ID,
        CHECKPOINT_ID,
        Column("epoch", "UInt64"),
        Column("driver", "UUID"),
        Column("host", "String"),
        Column("folder", "String"),
        Column("rows_by_table", "Map(String, UInt64)"),
    ),
    order_by="(pipeline_id, checkpoint_id, epoch)",
    settings=WRITE_EVERYWHERE,
)

# How long a check stays valid, in seconds. A check takes 6 to 9 ms of CPU, client and embedded server together, as much
# as the insert of 1,000 rows; twice a second it is 2 % of a core for each task that writes. A new driver waits as long,
# which is no longer than a person notices.
CHECK_VALID_SECONDS = 0.5

# Driver id -> when (clock of `steady_seconds`) this worker process last found that driver to be the newest.
_checked_at: dict[str, float] = {}


@dataclass(frozen=True)
class Epoch:
    """One start of a driver of a pipeline: `number` is greater than that of each earlier start.

    Two drivers that start at the same time may have the same number; the one with the greater `driver` (a UUID) counts
    as the newer.
    """

    database: str
    pipeline_id: str
    checkpoint_id: str
    number: int
    driver: str

    def require_newest_cached(self, client: Client) -> None:
        """Raise `Fenced` when a newer driver has started; query ClickHouse at most every `CHECK_VALID_SECONDS`.

        Called before every insert. A check that succeeded is remembered for this worker process, counted from before
        its query was sent. Raises what `require_newest` raises.
        """
        now = steady_seconds()
        last_check = _checked_at.get(self.driver)
        if last_check is None or now - last_check >= CHECK_VALID_SECONDS:
            self.require_newest(client)
            _checked_at[self.driver] = now

    def require_newest(self, client: Client) -> None:
        """Query ClickHouse, and raise `Fenced` unless this driver has the greatest (epoch, driver) of its pipeline.

        A greater one is of a newer driver; when the greatest is smaller, this driver's own row is missing. Raises
        `ClickHouseRefused` when the address leads to several servers with separate bookkeeping tables, and the client's
        own errors.
        """
        rows = client.query(
            f"SELECT epoch, toString(driver), host, folder, toString(inserted_at) "
            f"FROM {EPOCHS.full_name(self.database)} WHERE pipeline_id = {{pipeline:String}} "
            "ORDER BY epoch DESC, toString(driver) DESC LIMIT 1",
            parameters={"pipeline": self.pipeline_id},
        ).result_rows
        newest = (rows[0][0], rows[0][1]) if rows else (0, "")
        if newest < (self.number, self.driver):
            require_one_server(client, f"{self.database}.{EPOCHS.name}")
            raise Fenced(
                f"{self.pipeline_id}: {self.database}.{EPOCHS.name} has lost this driver's row, so it is not known "
                "whether another driver runs the pipeline; make sure that none does, then start the pipeline again"
            )
        if newest > (self.number, self.driver):
            _, _, host, folder, since = rows[0]
            raise Fenced(
                f"{self.pipeline_id}: another driver runs this pipeline since {since} UTC, on host {host} with its "
                f"state in {folder}; this driver has stopped and written nothing since. Keep one driver, and remove "
                "the other state folder: it is a copy, or hosts share it"
            )


@dataclass(frozen=True)
class DriverStart:
    """A recorded start of a driver: its host and state folder, and the time (UTC).

    rows_by_table: database.table of each of the sink's tables -> its rows then.
    closed: whether the ledger has a batch of its checkpoint.
    """

    host: str
    folder: str
    since: str
    rows_by_table: Mapping[str, int]
    closed: bool


def read_rival_starts(client: Client, epoch: Epoch) -> list[DriverStart]:
    """Return the starts of the pipeline's other checkpoints that this checkpoint does not account for, oldest first.

    These are all starts after this checkpoint's own first start, and the earlier ones whose checkpoint has no batch in
    the ledger. The rows of an earlier checkpoint with batches were accounted for when this checkpoint was created.
    """
    epochs, ledger = EPOCHS.full_name(epoch.database), LEDGER.full_name(epoch.database)
    own_checkpoint = "pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID}"
    starts = fetch(
        client,
        "SELECT host, folder, toString(inserted_at), rows_by_table, "
        f"checkpoint_id IN (SELECT checkpoint_id FROM {ledger} "
        f"WHERE pipeline_id = {{pipeline:String}}) AS closed FROM {epochs} WHERE pipeline_id = {{pipeline:String}} "
        f"AND checkpoint_id != {{checkpoint_id:UUID}} AND (NOT closed OR epoch >= "
        f"(SELECT min(epoch) FROM {epochs} WHERE {own_checkpoint})) ORDER BY epoch, toString(driver)",
        {"pipeline": epoch.pipeline_id, "checkpoint_id": epoch.checkpoint_id},
    )
    return [DriverStart(host, folder, since, rows, bool(closed)) for host, folder, since, rows, closed in starts]


def begin_epoch(  # noqa: PLR0913, PLR0917 - the columns of a row
    client: Client,
    database: str,
    pipeline_id: str,
    checkpoint_id: str,
    folder: str,
    rows_by_table: Mapping[str, int],
    after: int = 0,
) -> Epoch:
    """Insert a row with the next epoch of a pipeline; when this returns, no older driver begins another insert.

    folder: the driver's state folder, which the error of a fenced driver names.
    rows_by_table: see `DriverStart`.
    after: an epoch that the checkpoint's storage has (`last_claimed_epoch`), which may be greater than ClickHouse's
        after a move to another server.
    Raises what `fetch` and `execute` raise.
    """
    last, _ = _last_epoch_and_count(client, database, pipeline_id)
    epoch = Epoch(database, pipeline_id, checkpoint_id, max(last, after) + 1, str(uuid.uuid4()))
    # No token: a retry after a lost answer takes one more epoch, which does no harm.
    EPOCHS.insert_row(
        client,
        database,
        {
            "pipeline_id": pipeline_id,
            "checkpoint_id": checkpoint_id,
            "epoch": epoch.number,
            "driver": epoch.driver,
            "host": socket.gethostname(),
            "folder": folder,
            "rows_by_table": rows_by_table,
        },
    )
    # The pipeline's first driver (no earlier epoch, one row) need not wait. Of two first drivers that start at once, at
    # least one sees two rows here.
    if last or _last_epoch_and_count(client, database, pipeline_id)[1] > 1:
        time.sleep(CHECK_VALID_SECONDS)
    return epoch


def last_epoch(client: Client, database: str, pipeline_id: str) -> int | None:
    """Return the number of a pipeline's newest driver; None before its first start; the tables must exist."""
    return _last_epoch_and_count(client, database, pipeline_id)[0] or None


def _last_epoch_and_count(client: Client, database: str, pipeline_id: str) -> tuple[int, int]:
    """Return the greatest epoch of a pipeline (0 when it has none), and its number of rows."""
    last, count = fetch(
        client,
        f"SELECT max(epoch), count() FROM {EPOCHS.full_name(database)} WHERE pipeline_id = {{pipeline:String}}",
        {"pipeline": pipeline_id},
    )[0]
    return last, count
