"""A driver's claim to a checkpoint: a file in the checkpoint's storage that says who may write it.

`glassflow_epochs` in ClickHouse decides which driver may insert (stores/bookkeeping/fencing.py). It does not see a
driver of the same checkpoint whose definition or environment names another ClickHouse: both would take batches from one
log, and each table would get a part of the rows. So every driver also creates a file in
`<checkpoint>/glassflow/writers/` when it starts, named by its epoch and its id, and before each batch it checks that no
later name is there. Names are ordered as epochs are, so that the same driver goes on in both places, and no clock is
involved.
"""

import json
import re
import socket
import time
from dataclasses import dataclass, field

from glassflow_dagster.errors import Fenced
from glassflow_dagster.runtime.clocks import steady_seconds
from glassflow_dagster.stores.bookkeeping.fencing import CHECK_VALID_SECONDS, Epoch
from glassflow_dagster.stream.checkpoint.storage import Storage

_FOLDER = "glassflow/writers"
# The epoch with as many digits as an UInt64 may have, so that names are ordered as numbers are.
_NAME = re.compile(r"^(?P<epoch>\d{20})-[0-9a-f-]{36}$")


@dataclass
class WriterClaim:
    """The claim of one driver. name: of its file. checked_at: when it was last found to be the newest."""

    storage: Storage
    epoch: Epoch
    name: str
    _checked_at: float = field(default=-CHECK_VALID_SECONDS, init=False)

    def require_newest_cached(self) -> None:
        """Raise `Fenced` when a newer driver has claimed the checkpoint; look at most every `CHECK_VALID_SECONDS`."""
        if steady_seconds() - self._checked_at >= CHECK_VALID_SECONDS:
            self.require_newest()

    def require_newest(self) -> list[str]:
        """Look into the storage; return the names of older claims.

        Raises `Fenced` unless this claim is there and is the newest one.
        """
        # Before the look: a claim that comes during it may be missed.
        now = steady_seconds()
        names = _claims(self.storage)
        if names and names[-1] > self.name:
            raise Fenced(_taken_text(self.epoch.pipeline_id, self.storage, names[-1]))
        if self.name not in names:
            raise Fenced(
                f"{self.epoch.pipeline_id}: {self.storage.path(f'{_FOLDER}/{self.name}')} was removed, so it is not "
                "known whether another driver uses the checkpoint; make sure that none does, then start the pipeline "
                "again"
            )
        self._checked_at = now
        return names[:-1]


def claim_checkpoint(storage: Storage, epoch: Epoch) -> WriterClaim:
    """Claim a checkpoint for the driver that has begun `epoch`; remove the claims of older drivers.

    An older driver begins no batch `CHECK_VALID_SECONDS` after this returns. Raises `Fenced` where a newer one has the
    checkpoint, and the storage's errors.
    """
    claim = WriterClaim(storage, epoch, f"{epoch.number:020d}-{epoch.driver}")
    content = {"host": socket.gethostname(), "database": epoch.database, "since": time.strftime("%F %T", time.gmtime())}
    storage.create(f"{_FOLDER}/{claim.name}", json.dumps(content).encode())
    for name in claim.require_newest():
        storage.delete(f"{_FOLDER}/{name}")
    return claim


def last_claimed_epoch(storage: Storage) -> int:
    """Return the epoch of the newest claim of a checkpoint; 0 without one."""
    names = _claims(storage)
    return int(names[-1].partition("-")[0]) if names else 0


def _claims(storage: Storage) -> list[str]:
    """Return the names of a checkpoint's claims, the newest last, without files that are being written."""
    return sorted(name for name in storage.names(_FOLDER) if _NAME.match(name))


def _taken_text(pipeline_id: str, storage: Storage, name: str) -> str:
    """Return the message for a checkpoint that a newer driver has claimed."""
    try:
        by = json.loads(storage.read(f"{_FOLDER}/{name}"))
        who = f"on host {by['host']}, writing to database {by['database']}, since {by['since']} UTC (that host's clock)"
    except (FileNotFoundError, ValueError, KeyError):
        # It has been replaced by a newer one, or is of another version.
        who = "maybe on another host"
    return (
        f"{pipeline_id}: another driver uses the checkpoint {storage.location}, {who}; this driver has stopped and "
        "written nothing since. Keep one driver, or give the other one a state of its own (--state)"
    )
