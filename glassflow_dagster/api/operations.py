"""Starts and stops of drivers, which take seconds: each runs in a thread of its own while its request is answered."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread, current_thread

from glassflow_dagster.api.states import Status
from glassflow_dagster.errors import GlassflowError

_log = logging.getLogger(__name__)


@dataclass
class Operations:
    """The operations in progress, at most one of each pipeline, and why the last one of a pipeline failed.

    report: gets what people should know, one line each.
    """

    report: Callable[[str], None]
    _running: dict[str, tuple[Status, Thread]] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def current(self, pipeline_id: str) -> Status | None:
        """Return the status that an operation in progress gives to a pipeline; None without one."""
        with self._lock:
            running = self._running.get(pipeline_id)
            return running[0] if running else None

    def failure(self, pipeline_id: str) -> str:
        """Return why the last operation failed; empty where it did not."""
        with self._lock:
            return self._failures.get(pipeline_id, "")

    def forget(self, pipeline_id: str) -> None:
        """Forget a failure."""
        with self._lock:
            self._failures.pop(pipeline_id, None)

    def thread(self, pipeline_id: str) -> Thread | None:
        """Return the thread of the operation in progress; None without one."""
        with self._lock:
            running = self._running.get(pipeline_id)
            return running[1] if running else None

    def begin(self, pipeline_id: str, status: Status, work: Callable[[], object]) -> None:
        """Do the work in a thread; until it ends, the pipeline has this status.

        An operation that a later one overtakes, as Terminating does, ends without a trace.
        """
        # A daemon: a process that ends does not wait for a driver, which starts or stops without it, too.
        thread = Thread(target=self._run, args=(pipeline_id, work), name=f"{status}-{pipeline_id}", daemon=True)
        with self._lock:
            self._failures.pop(pipeline_id, None)
            self._running[pipeline_id] = (status, thread)
        thread.start()

    def _run(self, pipeline_id: str, work: Callable[[], object]) -> None:
        failure = ""
        try:
            work()
        except GlassflowError as error:
            failure = str(error)
            self.report(failure)
        except Exception as error:  # noqa: BLE001 - it would end only this thread
            _log.exception("%s: an operation failed", pipeline_id)
            failure = f"{pipeline_id}: {type(error).__name__}; the API's log has more"
        with self._lock:
            if pipeline_id in self._running and self._running[pipeline_id][1] is current_thread():
                del self._running[pipeline_id]
                if failure:
                    self._failures[pipeline_id] = failure
