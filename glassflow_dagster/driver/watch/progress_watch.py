"""Detects a running query that makes no progress, from a separate thread that does not call Spark.

A driver whose JVM is stopped, or whose batch hangs, is a process that runs and writes its heartbeat but does no work.
So the thread watches two things: how long a call to the JVM has been without an answer, and how long records have
waited since the last batch was written.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from glassflow_dagster.driver.jvm import JVM_SILENCE
from glassflow_dagster.stream.delivery.batch_writer import WriterProgress

# A batch of many records on a busy machine may take this many times as long as the slowest of the last batches.
_PACE_FACTOR = 10
_PACE_BATCHES = 10
# The slowest batch is assumed to take at least this long: the first one does, as Spark compiles its plan for it.
_SLOW_BATCH = 10.0  # seconds
_INTERVAL = 1.0  # seconds


class ProgressWatch:
    """Watches one query while the block runs; `stalled` is the reason why it makes no progress, '' while it does."""

    def __init__(
        self,
        written: Callable[[], WriterProgress],
        records_wait: Callable[[], bool],
        patience: float,
        jvm: int,
        report: Callable[[str], None],
    ) -> None:
        """Watch a query by its writer's progress.

        written: returns that progress.
        records_wait: returns whether there are records to write.
        patience: seconds that a batch may wait for its servers.
        jvm: the process id of Spark's JVM.
        """
        self.stalled = ""
        self._written, self._records_wait, self._jvm, self._report = written, records_wait, jvm, report
        self._patience = patience
        self._durations: deque[tuple[int, float]] = deque(maxlen=_PACE_BATCHES)
        # When the JVM call that is running now began; None while there is none. Monotonic seconds, as all times here.
        self._call_began: float | None = None
        # The last batch that was written, and since when it is the last.
        self._batch_id: int | None = None
        self._since = time.monotonic()
        # When Kafka was last asked whether records wait.
        self._records_checked = self._since
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the thread."""
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Time the block, which calls the JVM: one that takes too long is a stall."""
        self._call_began = time.monotonic()
        try:
            yield
        finally:
            self._call_began = None

    def took(self, batch_id: int, seconds: float) -> None:
        """Record how many seconds a batch took; a batch that is reported again is ignored."""
        if not self._durations or self._durations[-1][0] != batch_id:
            self._durations.append((batch_id, seconds))

    @property
    def bound(self) -> float:
        """The seconds that records may wait without a new batch before the query counts as stalled."""
        slowest = max((seconds for _, seconds in self._durations), default=0.0)
        return self._patience + _PACE_FACTOR * max(slowest, _SLOW_BATCH)

    def stall_reason(self, now: float) -> str:
        """Return why the query makes no progress at `now` (monotonic seconds), an empty string while it does.

        Two reasons: a call to the JVM takes longer than `JVM_SILENCE`, or records have waited for longer than `bound`
        since the last batch. Whether records wait (a request to Kafka) is checked only after half the bound; if none
        does, the time is counted from now on.
        """
        call_began, last = self._call_began, self._written().last
        if call_began is not None and now - call_began >= JVM_SILENCE:
            return (
                f"Spark's JVM (pid {self._jvm}) has not answered for {now - call_began:.0f} s (more than "
                f"{JVM_SILENCE:.0f} s): it was stopped (SIGSTOP), or the machine is out of memory; restart the "
                "pipeline, which continues where it stopped"
            )
        batch_id = None if last is None else last.batch_id
        if batch_id != self._batch_id:
            self._batch_id, self._since = batch_id, now
        idle = now - self._since
        # Checked twice within the bound: records that are only found at its end may have arrived just now.
        if idle >= self.bound / 2 and now - self._records_checked >= self.bound / 2:
            self._records_checked = now
            if not self._records_wait():
                self._since = now
                return ""
        if idle < self.bound:
            return ""
        return (
            f"records wait, but no batch was closed for {idle:.0f} s (expected within {self.bound:.0f} s); see "
            "driver.log and spark.log for the cause; restart the pipeline, which continues where it stopped"
        )

    def _loop(self) -> None:
        """Check the query every second; report when it stalls, and when it makes progress again."""
        while not self._stopped.wait(_INTERVAL):
            reason = self.stall_reason(time.monotonic())
            if bool(reason) != bool(self.stalled):
                self._report(f"stalled: {reason}" if reason else "continues")
            self.stalled = reason
