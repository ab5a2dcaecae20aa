"""The heartbeat: the state and progress of a driver, which it writes once a second to a file beside its checkpoint.

Whoever wants to know the state of a pipeline (the command line, Dagster's sensor and checks) reads this file; nobody
connects to the driver. Layout of a pipeline's folder:
`<state>/<pipeline_id>/{heartbeat.json, driver.log, lock, checkpoint/}`.
"""

import time
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from glassflow_dagster.runtime.metrics.histogram import Histogram
from glassflow_dagster.runtime.metrics.measures import Measures
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.stores.bookkeeping.outcomes import Totals

# A driver writes every second. One that has not for this long hangs or is dead; a long garbage collection is shorter.
STALE_AFTER = 30.0  # seconds


class DriverState(StrEnum):
    """The state of a driver, as it reports it itself."""

    STARTING = "STARTING"  # Spark is coming up, servers are being reached
    WAITING = "WAITING"  # the topic does not exist, and never did
    RUNNING = "RUNNING"
    STALLED = "STALLED"  # runs, but records wait and no batch is closed
    STOPPED = "STOPPED"  # because someone asked, or all was read
    FAILED = "FAILED"


class PartitionLag(BaseModel):
    """The unread records of a partition, and for how many seconds the oldest of them has been there."""

    records: int
    seconds: float


class Heartbeat(BaseModel):
    """The state and progress of a driver. Times are seconds since 1970; offsets are the next ones to read.

    lag: the unread records of all topics.
    lags: those of each source's topic.
    behind_transactions: by topic, the offsets that are not in the lag, as a transaction before them is open.
    state_bytes: the size of the query's state store, in memory and on disk; None where there is no state, or its size
        is not known yet.
    submission: the driver's, where another host has submitted it (`control.submission`).

    The fields from `epoch` on are for metrics.
    epoch: the driver's number.
    partition_lags: by topic and partition, as the brokers say every few seconds.
    lost_waiting: as in `outcomes.residual`.
    state_keys: keys in the state.
    watermark: of the event clock, None without one.
    measures: of this driver's batches.
    batch_phases: seconds by Spark's phase of a batch.
    """

    model_config = ConfigDict(extra="ignore")

    pipeline_id: str
    state: DriverState
    pid: int
    process_started: str
    updated_at: float
    message: str = ""
    fingerprint: str
    submission: str = ""
    joins: bool = False
    checkpoint_id: str | None = None
    batch_id: int | None = None
    batch_time: float | None = None
    offsets: dict[str, dict[int, int]] = {}
    totals: Totals = Totals()
    lag: int | None = None
    lags: dict[str, int] = {}
    behind_transactions: dict[str, int] = {}
    state_bytes: int | None = None
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    epoch: int | None = None
    partition_lags: dict[str, dict[int, PartitionLag]] = {}
    dead_letters_waiting: int | None = None
    lost_waiting: int = 0
    state_keys: int | None = None
    watermark: float | None = None
    measures: Measures = Measures()
    batch_phases: dict[str, Histogram] = {}


def pipeline_folder(state: Path, pipeline_id: str) -> Path:
    """Return the folder that holds everything of one pipeline on this host. state: the folder of all pipelines."""
    return state / pipeline_id


def pipelines_in(state: Path) -> list[str]:
    """Return the ids of the pipelines that have run on a state folder, sorted; none when there is no such folder."""
    if not state.is_dir():
        return []
    return sorted(folder.name for folder in state.iterdir() if (folder / "heartbeat.json").exists())


def make_pipeline_folder(folder: Path) -> None:
    """Create a pipeline's folder unless it exists; raise `OSError` where that fails.

    Checkpoint, working files and logs contain values of records, so only the user who runs the pipeline may read it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def read_heartbeat(folder: Path) -> Heartbeat | None:
    """Read the last heartbeat of a pipeline's driver; return None when it never ran on this state folder."""
    try:
        return Heartbeat.model_validate_json((folder / "heartbeat.json").read_text())
    except FileNotFoundError:
        return None


def write_heartbeat(folder: Path, heartbeat: Heartbeat) -> None:
    """Replace the heartbeat file atomically, so that a reader never sees half of it."""
    temporary = folder / "heartbeat.json.new"
    temporary.write_text(heartbeat.model_dump_json())
    temporary.replace(folder / "heartbeat.json")


def is_alive(heartbeat: Heartbeat) -> bool:
    """Return whether the process that wrote the heartbeat still runs."""
    return start_of(heartbeat.pid) == heartbeat.process_started


def is_fresh(heartbeat: Heartbeat) -> bool:
    """Return whether the heartbeat is recent: a driver that runs writes one every second."""
    return time.time() - heartbeat.updated_at < STALE_AFTER
