"""What a driver says of itself, once a second, in a file beside its checkpoint.

Everyone who asks how a pipeline is (the command line, Dagster's sensor and checks) reads this file; nobody asks the
driver. Layout of a pipeline's folder: `<state>/<pipeline_id>/{heartbeat.json, driver.log, lock, checkpoint/}`.
"""

import time
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.streaming.delivery.totals import Totals

# A driver writes every second; one that missed this many is hung or dead. A long garbage collection stays below it.
STALE_AFTER = 30.0  # seconds


class DriverState(StrEnum):
    """Where a driver is in its life."""

    STARTING = "STARTING"  # Spark is coming up, servers are being reached
    WAITING = "WAITING"  # the topic does not exist, and never did
    RUNNING = "RUNNING"
    STALLED = "STALLED"  # runs, but records wait and no batch is closed
    STOPPED = "STOPPED"  # because someone asked, or all was read
    FAILED = "FAILED"


class Heartbeat(BaseModel):
    """A driver's own account. Times are seconds since 1970; offsets are the next ones to read.

    lag: the records that wait in all topics; `lags`: those in each source's topic. state_bytes: what the state of the
    query takes, in memory and on disk; None where it has none, or none is known yet.
    """

    model_config = ConfigDict(extra="ignore")

    pipeline_id: str
    state: DriverState
    pid: int
    process_started: str
    updated_at: float
    message: str = ""
    fingerprint: str
    checkpoint_id: str | None = None
    batch_id: int | None = None
    batch_time: float | None = None
    offsets: dict[str, dict[int, int]] = {}
    totals: Totals = Totals()
    lag: int | None = None
    lags: dict[str, int] = {}
    state_bytes: int | None = None
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0


def pipeline_folder(state: Path, pipeline_id: str) -> Path:
    """Give the folder that holds all that belongs to one pipeline on this host."""
    return state / pipeline_id


def make_pipeline_folder(folder: Path) -> None:
    """Make a pipeline's folder unless it is there; raises `OSError`.

    Checkpoint, working files and logs hold what is in records, so it is for its own user only.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def read_heartbeat(folder: Path) -> Heartbeat | None:
    """Read the last account of a pipeline's driver; None when it never ran here."""
    try:
        return Heartbeat.model_validate_json((folder / "heartbeat.json").read_text())
    except FileNotFoundError:
        return None


def write_heartbeat(folder: Path, heartbeat: Heartbeat) -> None:
    """Replace the account at once, so that a reader never sees half of it."""
    temporary = folder / "heartbeat.json.new"
    temporary.write_text(heartbeat.model_dump_json())
    temporary.replace(folder / "heartbeat.json")


def is_alive(heartbeat: Heartbeat) -> bool:
    """Whether the process that wrote the heartbeat still runs."""
    return start_of(heartbeat.pid) == heartbeat.process_started


def is_fresh(heartbeat: Heartbeat) -> bool:
    """Whether the driver wrote lately enough to be believed."""
    return time.time() - heartbeat.updated_at < STALE_AFTER
