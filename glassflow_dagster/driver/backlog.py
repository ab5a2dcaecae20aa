"""Whether a pipeline keeps up with its topics, and what to raise where it does not."""

from collections import deque
from dataclasses import dataclass, field

# What waits goes up and down with each batch; over so long it is the rates that tell. Seconds.
_WATCHED = 300.0
# The least of one such part is held against the greatest of another. Seconds.
_PART = 60.0
# From here on a block's overhead is small beside its rows.
_LARGE_BLOCK = 10_000


@dataclass
class Backlog:
    """The records that wait in Kafka, as they were seen over the last minutes: pairs of (seconds, records).

    cores: tasks that run at once; block_rows: `max_batch_size`.
    """

    cores: int
    block_rows: int
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def judge(self, now: float, waiting: int | None, partitions: int) -> str:
        """Take what waits now, None where it is not known; gives what to tell the user, empty while all is well.

        partitions: of the sources' topics.
        A pipeline cannot keep up when what waits only grows: in the last minute never less waited than at any time of
        the minute five minutes ago, and more.
        """
        if waiting is None:
            return ""
        self._seen.append((now, waiting))
        # One sample that is older stays, to tell that the time has passed.
        while len(self._seen) > 1 and self._seen[1][0] <= now - _WATCHED:
            self._seen.popleft()
        begin = self._seen[0][0]
        if now - begin < _WATCHED:
            return ""
        before = max(count for at, count in self._seen if at <= begin + _PART)
        lately = min(count for at, count in self._seen if at >= now - _PART)
        if lately <= before:
            return ""
        return (
            f"cannot keep up: {before:,} records waited five minutes ago, {waiting:,} do now; raise "
            f"{self._advice(partitions)}"
        )

    def _advice(self, partitions: int) -> str:
        """Say what to raise, the cheapest first."""
        found = [f"the cores it runs on ({self.cores})"]
        if partitions < self.cores:
            found.insert(0, f"the partitions of its topics ({partitions}, where {self.cores} could be read at once)")
        if self.block_rows < _LARGE_BLOCK:
            found.insert(0, f"sink.max_batch_size ({self.block_rows:,} rows; good are {_LARGE_BLOCK:,} to 50,000)")
        return ", or ".join(found)
