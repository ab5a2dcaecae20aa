"""Whether a running query makes progress, judged by a thread beside it, which asks Spark nothing.

A driver whose JVM is stopped, or whose batch hangs, is a living process that writes its heartbeat and does no work. So
the thread looks at two things: how long a question to the JVM has gone without an answer, and how long records have
waited since the last batch was closed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from glassflow_dagster.streaming.delivery.batch_writer import WriterProgress

# What the driver asks once a second is answered within milliseconds. A long garbage collection stays below it.
JVM_SILENCE = 30.0  # seconds
# A batch of many records, on a machine that has other work just then, takes some times as long as those before it.
_PACE_FACTOR = 10
_PACE_BATCHES = 10
# What the slowest batch is taken for at least; so long takes the first one, for which Spark compiles its plan.
_SLOW_BATCH = 10.0  # seconds
_INTERVAL = 1.0  # seconds


class ProgressWatch:
    """Judges one query while the block runs; `stalled` says why it makes no progress, empty while it does."""

    def __init__(
        self,
        written: Callable[[], WriterProgress],
        records_wait: Callable[[], bool],
        patience: float,
        jvm: int,
        report: Callable[[str], None],
    ) -> None:
        """Watch a query by what its writer says; `records_wait` tells whether there is anything to write.

        patience: seconds that a batch may wait for its servers. jvm: the process id of Spark's.
        """
        self.stalled = ""
        self._written, self._records_wait, self._jvm, self._report = written, records_wait, jvm, report
        self._patience = patience
        self._durations: deque[tuple[int, float]] = deque(maxlen=_PACE_BATCHES)
        self._asked: float | None = None
        self._batch_id: int | None = None
        self._since = self._looked = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)

    def __enter__(self) -> Self:
        """Begin to judge."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop judging."""
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Hold the block, which asks the JVM something, against the time that it may take."""
        self._asked = time.monotonic()
        try:
            yield
        finally:
            self._asked = None

    def took(self, batch_id: int, seconds: float) -> None:
        """Take note of how long a batch took."""
        if not self._durations or self._durations[-1][0] != batch_id:
            self._durations.append((batch_id, seconds))

    @property
    def bound(self) -> float:
        """The seconds that records may wait without a batch being closed."""
        slowest = max((seconds for _, seconds in self._durations), default=0.0)
        return self._patience + _PACE_FACTOR * max(slowest, _SLOW_BATCH)

    def judge(self, now: float) -> str:
        """Return why the query makes no progress at `now` (monotonic seconds), empty while it does.

        Whether records wait is asked only when no batch was closed for half the bound.
        """
        asked, last = self._asked, self._written().last
        if asked is not None and now - asked >= JVM_SILENCE:
            return (
                f"Spark's JVM (pid {self._jvm}) has not answered for {now - asked:.0f} s (more than {JVM_SILENCE:.0f} "
                "s): it was stopped (SIGSTOP), or the machine has no memory left; restart the pipeline, which goes on "
                "where it stopped"
            )
        batch_id = None if last is None else last.batch_id
        if batch_id != self._batch_id:
            self._batch_id, self._since = batch_id, now
        quiet = now - self._since
        # Looked at twice within the bound: what is found at its end may have come in this moment.
        if quiet >= self.bound / 2 and now - self._looked >= self.bound / 2:
            self._looked = now
            if not self._records_wait():
                self._since = now
                return ""
        if quiet < self.bound:
            return ""
        return (
            f"records wait, but no batch was closed for {quiet:.0f} s (by its pace one is, within {self.bound:.0f} s); "
            "driver.log and spark.log may say what it waits for; restart the pipeline, which goes on where it stopped"
        )

    def _loop(self) -> None:
        while not self._stopped.wait(_INTERVAL):
            found = self.judge(time.monotonic())
            if bool(found) != bool(self.stalled):
                self._report(f"stalled: {found}" if found else "goes on")
            self.stalled = found
