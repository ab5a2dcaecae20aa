"""Whether a batch's time can be believed, asked before anything of the batch is read or written.

On the processing clock a key is known, and a join's event waits, from one batch's time to another's. Spark takes a
batch's time from the clock of the driver's machine. Where that is set forward by more than a window, keys are forgotten
whose window has not gone by, and duplicates pass; where it is set back, keys stay known for too long, and events that
are none are dropped as duplicates. Two witnesses tell such a jump from time that has gone by: the machine's steady
clock, from one batch of a driver to the next, and ClickHouse's clock, also over a restart.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from glassflow_dagster.clocks import steady_seconds
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.streaming.checkpoint.checkpoint import BatchPlan

# What a clock may be moved by, as a share of the shortest window: the window is off by so much, once.
_SHARE = 10
# Below, batches themselves are as long; machines that ask a time server are right within much less.
_LEAST = timedelta(seconds=10)
# Above, a window is long enough, but a clock that is off by a time zone (30 minutes at least) is to be found out.
_MOST = timedelta(minutes=25)


class ClockMoved(GlassflowError):
    """The clock of the driver's machine was moved, and going on would forget keys early or keep them too long."""


@dataclass(frozen=True)
class Reading:
    """Both clocks of a driver in one moment: `wall`, seconds since 1970 as it is set, and `steady` seconds."""

    wall: float
    steady: float

    @classmethod
    def now(cls) -> "Reading":
        """Read both."""
        return cls(time.time(), steady_seconds())


@dataclass
class BatchClock:
    """Compares each new batch's time with those before it.

    tolerance: seconds by which a clock may be moved. last: the plan of the newest batch; None before the first.
    accepted: whether the next batch is believed, as a person has said that the clock is right now.
    """

    tolerance: float
    last: BatchPlan | None
    accepted: bool
    say: Callable[[str], None]
    read: Callable[[], Reading] = Reading.now
    _reading: Reading | None = field(default=None, init=False)

    def require_plausible(self, batch_time_ms: int, reading: Reading, server_lead_ms: int) -> None:
        """Raise `ClockMoved` unless as much time has gone by since the last batch as the clock says.

        reading: of this machine's clocks when the batch began. server_lead_ms: how far ClickHouse's clock is ahead of
        this machine's, in milliseconds. Call `follow` with the batch's plan afterwards.
        """
        if self.accepted:
            self.accepted = False
            return
        time_of_batch, lead = batch_time_ms / 1000, server_lead_ms / 1000
        if self.last is None:
            if abs(lead) > _MOST.total_seconds():
                raise ClockMoved(self._refusal(time_of_batch, lead, "no batch was written yet"))
            return
        told = f"batch {self.last.batch_id} was of {_utc(self.last.batch_time_ms / 1000)}"
        if not self.last.batch_time_ms / 1000 - self.tolerance <= time_of_batch <= reading.wall + self.tolerance:
            raise ClockMoved(self._refusal(time_of_batch, lead, told))
        if self._reading and self._moved_since(self._reading, reading) <= self.tolerance:
            return
        # Without a reading of this driver's own the only witness: a pause may be of any length.
        known = self.last.server_lead_ms
        tolerance = self.tolerance if known is not None else _MOST.total_seconds()
        if abs(lead - (known or 0) / 1000) > tolerance:
            raise ClockMoved(self._refusal(time_of_batch, lead, told))
        if self._reading:
            moved = timedelta(seconds=round(self._moved_since(self._reading, reading)))
            self.say(f"the clock went on by {moved} while this machine stood still, as ClickHouse's clock did")

    def follow(self, plan: BatchPlan, reading: Reading) -> None:
        """Compare the next batch with this one."""
        self.last, self._reading = plan, reading

    @staticmethod
    def _moved_since(before: Reading, now: Reading) -> float:
        return abs((now.wall - before.wall) - (now.steady - before.steady))

    @staticmethod
    def _refusal(time_of_batch: float, lead: float, before: str) -> str:
        return (
            f"the clock of this machine cannot be believed: the batch would be of {_utc(time_of_batch)}, {before}, and "
            f"by ClickHouse's clock it is {_utc(time.time() + lead)}; keys would be forgotten early, or known for too "
            "long. Nothing of the batch is read. Set the clock right, best by a time server, and start the pipeline "
            "again; where it is right now, start it once by `run FILE --accept-clock`"
        )


def tolerance_of(config: PipelineConfig) -> float | None:
    """Give the seconds by which the clock may be moved; None where no window goes by it."""
    windows = [found.time_window for source in config.inputs if (found := config.dedup_of(source))]
    windows += [side.time_window for side in config.join.sides] if config.join else []
    return max(_LEAST, min(_MOST, min(windows) / _SHARE)).total_seconds() if windows else None


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
