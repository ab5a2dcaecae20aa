"""Detects a pipeline that cannot keep up with its topics, and advises which setting to raise."""

from collections import deque
from dataclasses import dataclass, field

# The lag rises and falls with every batch; only over this many seconds does it show a trend.
_WINDOW = 300.0
# Length in seconds of the two parts that are compared: the highest lag of the first part, the lowest of the last one.
_PART = 60.0
# From this many rows on, the overhead of a block is small beside the cost of its rows.
_LARGE_BLOCK = 10_000


@dataclass
class Backlog:
    """Samples of a pipeline's lag over the last five minutes, as pairs of (seconds, unread records in Kafka).

    cores: tasks that run at once.
    block_rows: `max_batch_size`.
    """

    cores: int
    block_rows: int
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def add_sample(self, now: float, lag: int | None, partitions: int) -> str:
        """Add a sample of the lag; return a warning for the user when the lag keeps growing, else an empty string.

        now: monotonic seconds.
        lag: unread records, None where Spark does not know it yet.
        partitions: the number of partitions of the sources' topics.
        The lag keeps growing when its lowest value of the last minute is above its highest value of the minute that
        began five minutes ago. There is no warning before five minutes have been sampled.
        """
        if lag is None:
            return ""
        self._samples.append((now, lag))
        # One sample older than the window is kept: it proves that the window has been sampled from its start.
        while len(self._samples) > 1 and self._samples[1][0] <= now - _WINDOW:
            self._samples.popleft()
        start = self._samples[0][0]
        if now - start < _WINDOW:
            return ""
        highest_before = max(unread for sampled_at, unread in self._samples if sampled_at <= start + _PART)
        lowest_now = min(unread for sampled_at, unread in self._samples if sampled_at >= now - _PART)
        if lowest_now <= highest_before:
            return ""
        return (
            f"cannot keep up: {highest_before:,} records waited five minutes ago, {lag:,} do now; raise "
            f"{self._advice(partitions)}"
        )

    def _advice(self, partitions: int) -> str:
        """Return the settings to raise as text, the cheapest one first."""
        settings = [f"the cores it runs on ({self.cores})"]
        if partitions < self.cores:
            settings.insert(0, f"the partitions of its topics ({partitions}, where {self.cores} could be read at once)")
        if self.block_rows < _LARGE_BLOCK:
            settings.insert(
                0, f"sink.max_batch_size ({self.block_rows:,} rows; recommended: {_LARGE_BLOCK:,} to 50,000)"
            )
        return ", or ".join(settings)
