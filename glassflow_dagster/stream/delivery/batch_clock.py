"""Checks that a batch's time is plausible, before any record of the batch is read or written.

On the processing clock, dedup windows and join windows are measured between the times of batches, and Spark takes a
batch's time from the clock of the driver's machine. If that clock is set forward by more than a window, keys are
forgotten too early and duplicates pass; if it is set back, keys are known for too long and good events are dropped as
duplicates. Two other clocks show whether time has really passed: the machine's monotonic clock, from one batch of a
driver to the next, and ClickHouse's clock, also across a restart.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.clocks import steady_seconds
from glassflow_dagster.stream.checkpoint.checkpoint import BatchPlan

# The clock may jump by a tenth of the shortest window: then one window is wrong by that much, once.
_SHARE = 10
# A smaller tolerance would be in the range of a batch's duration; clocks set by a time server are much more exact.
_MIN_TOLERANCE = timedelta(seconds=10)
# A larger tolerance would miss a clock that is off by a time zone, which is 30 minutes at least.
_MAX_TOLERANCE = timedelta(minutes=25)


class ClockMoved(GlassflowError):
    """The machine's clock has jumped, so windows would be wrong: set it right, or confirm it by `--accept-clock`."""


@dataclass(frozen=True)
class Reading:
    """Both clocks of a machine at one moment: `wall`, seconds since 1970, and `steady`, monotonic seconds."""

    wall: float
    steady: float

    @classmethod
    def now(cls) -> "Reading":
        """Read both clocks."""
        return cls(time.time(), steady_seconds())


@dataclass
class BatchClock:
    """Compares each new batch's time with the batch before it.

    tolerance: seconds by which a clock may jump.
    last: the plan of the newest batch; None before the first.
    confirmed_by_user: skip the check of the next batch (`run --accept-clock`).
    report: prints a line for the user.
    """

    tolerance: float
    last: BatchPlan | None
    confirmed_by_user: bool
    report: Callable[[str], None]
    read: Callable[[], Reading] = Reading.now
    _reading: Reading | None = field(default=None, init=False)

    def require_plausible(self, batch_time_ms: int, reading: Reading, server_lead_ms: int) -> None:
        """Raise `ClockMoved` unless the time since the last batch is confirmed by another clock.

        Before the first batch, this machine's clock must only be within 25 minutes of ClickHouse's. Nothing is checked
        where the user has confirmed the clock (`confirmed_by_user`), which counts for one batch. The batch's time must
        not be before the last batch's, nor after this machine's time. Then the monotonic clock must have advanced as
        far as the machine's clock since this driver's last batch, or the difference to ClickHouse's clock must be what
        it was at the last batch; each within the tolerance.
        reading: this machine's clocks when the batch began.
        server_lead_ms: how far ClickHouse's clock is ahead of this machine's, in milliseconds.
        Call `follow` with the batch's plan afterwards.
        """
        if self.confirmed_by_user:
            self.confirmed_by_user = False
            return
        time_of_batch, lead = batch_time_ms / 1000, server_lead_ms / 1000
        if self.last is None:
            if abs(lead) > _MAX_TOLERANCE.total_seconds():
                raise ClockMoved(self._problem(time_of_batch, lead, "no batch has been written yet"))
            return
        last_batch = f"batch {self.last.batch_id} has the time {_utc(self.last.batch_time_ms / 1000)}"
        earliest, latest = self.last.batch_time_ms / 1000 - self.tolerance, reading.wall + self.tolerance
        if not earliest <= time_of_batch <= latest:
            raise ClockMoved(self._problem(time_of_batch, lead, last_batch))
        if self._reading and self._drift_since(self._reading, reading) <= self.tolerance:
            return
        # ClickHouse's clock decides: this driver has no earlier reading, or the monotonic clock stood still (a machine
        # that was suspended).
        last_lead_ms = self.last.server_lead_ms
        # A plan without a lead: both clocks are taken to have been equal then, with a larger tolerance.
        tolerance = self.tolerance if last_lead_ms is not None else _MAX_TOLERANCE.total_seconds()
        if abs(lead - (last_lead_ms or 0) / 1000) > tolerance:
            raise ClockMoved(self._problem(time_of_batch, lead, last_batch))
        if self._reading:
            moved = timedelta(seconds=round(self._drift_since(self._reading, reading)))
            self.report(f"the clock advanced by {moved} while this machine was suspended, as ClickHouse's clock did")

    def follow(self, plan: BatchPlan, reading: Reading) -> None:
        """Remember this batch and its reading; the next batch is compared with them."""
        self.last, self._reading = plan, reading

    @staticmethod
    def _drift_since(before: Reading, now: Reading) -> float:
        """Return the seconds by which the wall clock has advanced more, or less, than the monotonic clock."""
        return abs((now.wall - before.wall) - (now.steady - before.steady))

    @staticmethod
    def _problem(time_of_batch: float, lead: float, last_batch: str) -> str:
        """Return the text of `ClockMoved`. last_batch: what is known of the batch before."""
        return (
            f"the clock of this machine is implausible: the batch would have the time {_utc(time_of_batch)}, "
            f"{last_batch}, and ClickHouse's clock says {_utc(time.time() + lead)}; deduplication would drop keys too "
            "early or keep them too long. Nothing of the batch is read. Set the clock, best with NTP, then start the "
            "pipeline again; if it is right now, start once with `run FILE --accept-clock`"
        )


def tolerance_of(config: PipelineConfig) -> float | None:
    """Return the seconds by which the clock may jump: a tenth of the shortest window, within 10 s and 25 minutes.

    None without a dedup or join window.
    """
    windows = [dedup.time_window for source in config.inputs if (dedup := config.dedup_of(source))]
    windows += [side.time_window for side in config.join.sides] if config.join else []
    return max(_MIN_TOLERANCE, min(_MAX_TOLERANCE, min(windows) / _SHARE)).total_seconds() if windows else None


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
