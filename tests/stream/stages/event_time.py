"""A plain Python reference of deduplication on the event clock, to compare the stream with."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

DAY = 86_400_000_000


@dataclass(frozen=True, order=True)
class Record:
    """A record of a batch, ordered by its position; times are in microseconds."""

    topic: int
    partition: int
    offset: int
    key: str
    time: int


@dataclass
class EventClock:
    """The state after some batches. Durations and times are microseconds, the watermark a whole millisecond."""

    window: int
    lateness: int
    late: str
    accepted: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    watermark: int | None = None

    def batch(self, records: Iterable[Record], batch_time: int) -> tuple[list[Record], list[Record], int]:
        """Process a batch; return the accepted records, the late records, and the number of duplicates."""
        accepted, late, duplicates = [], [], 0
        for record in sorted(records):
            behind = self.watermark is not None and record.time < self.watermark
            if any(abs(record.time - time) < self.window for time in self._known(record.key, record_batch=accepted)):
                duplicates += 1
            elif behind and self.late != "keep":
                late.append(record)
            else:
                accepted.append(record)
        for record in accepted:
            self.accepted[record.key].append(record.time)
        leading = [record.time for record in records if record.time <= batch_time + DAY]
        newest = max((min(time, batch_time) for time in leading), default=0)
        reached = newest // 1000 * 1000 - self.lateness
        if reached > 0:
            self.watermark = max(reached, self.watermark or 0)
        return accepted, late, duplicates

    def _known(self, key: str, record_batch: list[Record]) -> list[int]:
        """Return the accepted times of a key within a window of the watermark, including this batch's."""
        before = [time for time in self.accepted[key] if self.watermark is None or time + self.window > self.watermark]
        return before + [record.time for record in record_batch if record.key == key]
