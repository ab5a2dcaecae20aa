"""Which driver of a pipeline is the newest: an older one, on whatever host, writes nothing any more.

On one host a lock keeps drivers apart. It does not see a copy of the state folder, nor always a folder that two hosts
share, nor another folder where the pipeline begins anew. So every start of a driver is a row in ClickHouse, and every
insert asks first whether a newer one has come; an answer counts for a moment. A driver that begins waits for that
moment, so what is older has begun its last insert by then, unless it slept between question and insert; only the first
of a pipeline has nobody to wait for. One that slept anywhere else asks again when it wakes.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import socket
import time
import uuid
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.ledger import LEDGER
from glassflow_dagster.bookkeeping.schema import CHECKPOINT_ID, PIPELINE_ID, WRITE_EVERYWHERE, BookkeepingTable, Column
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.server_run import require_one_server
from glassflow_dagster.clocks import steady_seconds
from glassflow_dagster.errors import GlassflowError

# Every start of a driver; the one with the greatest epoch may write.
EPOCHS = BookkeepingTable(
    "glassflow_epochs",
    (
        PIPELINE_ID,
        CHECKPOINT_ID,
        Column("epoch", "UInt64"),
        Column("driver", "UUID"),
        Column("host", "String"),
        Column("folder", "String"),
        Column("rows", "UInt64"),
    ),
    order_by="(pipeline_id, checkpoint_id, epoch)",
    settings=WRITE_EVERYWHERE,
)

# How long an answer counts, in seconds. A question takes 6 to 9 ms of CPU, client and embedded server together, as much
# as the insert of 1,000 rows; asked twice a second it is 2 % of a core for each task that writes. A driver that begins
# waits no longer than a person notices.
ANSWER_COUNTS = 0.5

# When each driver whose workers this process is was last found to be the newest.
_asked: dict[str, float] = {}


class Fenced(GlassflowError):
    """A newer driver has begun to run this pipeline; this one must not write, and is not to be brought back."""


@dataclass(frozen=True)
class Epoch:
    """A driver's turn at a pipeline: `number` is one more than that of the driver before.

    Of two that took the same number at the same time the one with the greater `driver` (a uuid) is the newer.
    """

    database: str
    pipeline_id: str
    checkpoint_id: str
    number: int
    driver: str

    def confirm(self, client: Client) -> None:
        """Raise `Fenced` when a newer driver has begun; ClickHouse is queried at most every `ANSWER_COUNTS` seconds.

        Between two queries the last result is taken as still valid. Raises what `require_newest` raises.
        """
        now = steady_seconds()
        if now - _asked.get(self.driver, float("-inf")) >= ANSWER_COUNTS:
            self.require_newest(client)
            _asked[self.driver] = now

    def require_newest(self, client: Client) -> None:
        """Raise `Fenced` when another driver has a newer one; errors of the client are its own.

        Raises `ClickHouseRefused` where another server answers, which has bookkeeping tables of its own.
        """
        found = client.query(
            f"SELECT epoch, toString(driver), host, folder, toString(inserted_at) "
            f"FROM {EPOCHS.full_name(self.database)} WHERE pipeline_id = {{pipeline:String}} "
            "ORDER BY epoch DESC, toString(driver) DESC LIMIT 1",
            parameters={"pipeline": self.pipeline_id},
        ).result_rows
        newest = (found[0][0], found[0][1]) if found else (0, "")
        if newest < (self.number, self.driver):
            require_one_server(client, f"{self.database}.{EPOCHS.name}")
            raise Fenced(
                f"{self.pipeline_id}: {self.database}.{EPOCHS.name} has lost this driver's row, so whether another one "
                "runs the pipeline is not known; see that nothing else does, then start it again"
            )
        if newest > (self.number, self.driver):
            _, _, host, folder, since = found[0]
            raise Fenced(
                f"{self.pipeline_id}: another driver runs this pipeline since {since} UTC, on host {host} with its "
                f"state in {folder}; this one has stopped and written nothing since. Let one of them run, and remove "
                "the other state folder, which is a copy, or is shared by hosts"
            )


@dataclass(frozen=True)
class Start:
    """A driver's start: where its state is, when it began (UTC), and how many rows the target had then.

    closed: whether the ledger has a batch of its checkpoint.
    """

    host: str
    folder: str
    since: str
    rows: int
    closed: bool


def rival_starts(client: Client, epoch: Epoch) -> list[Start]:
    """Give the starts of the pipeline's other checkpoints that this one has not taken note of, the first one first.

    All that came after this checkpoint's own first one, and of those before it the ones without a batch in the ledger:
    what the others had written was known when this checkpoint was made.
    """
    epochs, ledger = EPOCHS.full_name(epoch.database), LEDGER.full_name(epoch.database)
    mine = "pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID}"
    found = fetch(
        client,
        f"SELECT host, folder, toString(inserted_at), rows, checkpoint_id IN (SELECT checkpoint_id FROM {ledger} "
        f"WHERE pipeline_id = {{pipeline:String}}) AS closed FROM {epochs} WHERE pipeline_id = {{pipeline:String}} "
        f"AND checkpoint_id != {{checkpoint_id:UUID}} AND (NOT closed OR epoch >= "
        f"(SELECT min(epoch) FROM {epochs} WHERE {mine})) ORDER BY epoch, toString(driver)",
        {"pipeline": epoch.pipeline_id, "checkpoint_id": epoch.checkpoint_id},
    )
    return [Start(host, folder, since, rows, bool(closed)) for host, folder, since, rows, closed in found]


def begin_epoch(  # noqa: PLR0913, PLR0917 - the columns of a row
    client: Client, database: str, pipeline_id: str, checkpoint_id: str, folder: str, rows: int
) -> Epoch:
    """Take the next turn at a pipeline; when this returns, no driver before begins another insert.

    folder: the driver's state, for the one that is fenced to name. rows: of the target, now. Raises what `fetch`
    and `execute` raise.
    """
    last, _ = _found(client, database, pipeline_id)
    epoch = Epoch(database, pipeline_id, checkpoint_id, last + 1, str(uuid.uuid4()))
    # Whoever asks again because the answer was lost takes one more.
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
            "rows": rows,
        },
    )
    # Where nobody was before: of two that begin at once, each sees the other's row now unless its own was the first.
    if last or _found(client, database, pipeline_id)[1] > 1:
        time.sleep(ANSWER_COUNTS)
    return epoch


def _found(client: Client, database: str, pipeline_id: str) -> tuple[int, int]:
    """Give the greatest epoch of a pipeline, 0 when there is none, and how many there are."""
    last, count = fetch(
        client,
        f"SELECT max(epoch), count() FROM {EPOCHS.full_name(database)} WHERE pipeline_id = {{pipeline:String}}",
        {"pipeline": pipeline_id},
    )[0]
    return last, count
