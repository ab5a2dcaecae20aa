"""Counts the keys in a deduplication window: rows that were written within it, since each claimed a key.

Spark does not count the keys of the state: keeping that number would cost a read of RocksDB for each write.
"""

from dataclasses import dataclass, field

_MINUTE_MS = 60_000


@dataclass
class KeyCount:
    """The number of keys of one pipeline.

    window_ms: the window.
    by_minute: rows of earlier runs, by minute of 1970.

    Rows that the server refused have a key, too, and are not counted.
    """

    window_ms: int
    by_minute: dict[int, int] = field(default_factory=dict)
    _written: int = 0

    def count(self, written: int, batch_time_ms: int | None, now_ms: int) -> int:
        """Return the number of keys now.

        written: rows of this run up to its last batch, whose time follows.
        batch_time_ms: None before the first batch.
        Times are milliseconds since 1970.
        """
        if batch_time_ms is not None:
            minute = batch_time_ms // _MINUTE_MS
            self.by_minute[minute] = self.by_minute.get(minute, 0) + written - self._written
            self._written = written
        first = (now_ms - self.window_ms) // _MINUTE_MS
        self.by_minute = {minute: rows for minute, rows in self.by_minute.items() if minute >= first}
        return sum(self.by_minute.values())
