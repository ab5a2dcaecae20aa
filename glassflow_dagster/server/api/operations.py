"""Starts and stops of drivers, which take seconds: each runs in a thread of its own while its request is answered.

An operation in progress is a file, `.api/operations/ID/TIME-STATUS`, that its process holds locked: so that other
processes on the same folder of definitions see it too, and nobody sees it any more once its process has ended.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.states import Status

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Operation:
    """An operation in progress, of this process or of another one."""

    file: Path

    @property
    def status(self) -> Status:
        """The status that it gives to its pipeline."""
        return Status(self.file.name.partition("-")[2])

    def is_in_progress(self) -> bool:
        """Return whether its process still works on it."""
        try:
            with self.file.open() as opened:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        # Its process has ended in the middle of it.
        self.file.unlink(missing_ok=True)
        return False

    def overtake(self) -> None:
        """Note in its file that a later operation has begun."""
        with suppress(FileNotFoundError):
            descriptor = os.open(self.file, os.O_WRONLY)
            os.write(descriptor, b"overtaken")
            os.close(descriptor)

    @property
    def is_overtaken(self) -> bool:
        """Whether a later operation has begun meanwhile."""
        return self.file.stat().st_size > 0


@dataclass
class Operations:
    """The operations in progress, and why the last one of a pipeline failed.

    folder: of the operations of all pipelines; written only where the folder of definitions is locked.
    report: gets what people should know, one line each.
    """

    folder: Path
    report: Callable[[str], None]
    _threads: dict[str, Thread] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def newest(self, pipeline_id: str) -> Operation | None:
        """Return the operation of a pipeline that began last and is in progress; None without one."""
        return next(self._in_progress(pipeline_id), None)

    def current(self, pipeline_id: str) -> Status | None:
        """Return the status that an operation in progress gives to a pipeline; None without one."""
        operation = self.newest(pipeline_id)
        return operation.status if operation else None

    def failure(self, pipeline_id: str) -> str:
        """Return why the last operation of this process failed; empty where it did not."""
        with self._lock:
            return self._failures.get(pipeline_id, "")

    def forget(self, pipeline_id: str) -> None:
        """Forget a failure."""
        with self._lock:
            self._failures.pop(pipeline_id, None)

    def thread(self, pipeline_id: str) -> Thread | None:
        """Return the thread of the last operation that this process has begun; None without one."""
        with self._lock:
            return self._threads.get(pipeline_id)

    def begin(self, pipeline_id: str, status: Status, work: Callable[[], object]) -> None:
        """Do the work in a thread; until it ends, the pipeline has this status.

        An operation that a later one overtakes, as Terminating does, ends without a trace. Raises `GlassflowError`.
        """
        operation, lock = self._claim(pipeline_id, status)
        # A daemon: a process that ends does not wait for a driver, which starts or stops without it, too.
        thread = Thread(
            target=self._run, args=(pipeline_id, work, operation, lock), name=f"{status}-{pipeline_id}", daemon=True
        )
        with self._lock:
            self._failures.pop(pipeline_id, None)
            self._threads[pipeline_id] = thread
        thread.start()

    def _run(self, pipeline_id: str, work: Callable[[], object], operation: Operation, lock: int) -> None:
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
            # Before its file is gone: a status that is read in between is not that of a success.
            if failure and not operation.is_overtaken:
                self._failures[pipeline_id] = failure
            operation.file.unlink(missing_ok=True)
            os.close(lock)

    def _claim(self, pipeline_id: str, status: Status) -> tuple[Operation, int]:
        """Return a new operation of this process, and the descriptor that holds its lock."""
        folder = self.folder / pipeline_id
        operation = Operation(folder / f"{time.time_ns():020d}-{status}")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for earlier in self._in_progress(pipeline_id):
                earlier.overtake()
            # Locked before it has its name, as one that nobody locks is taken for one of a process that has ended.
            temporary = folder / f".{operation.file.name}"
            lock = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            temporary.rename(operation.file)
        except OSError as error:
            raise GlassflowError(f"{folder}: cannot be written ({error.strerror}); make it writable") from None
        return operation, lock

    def _in_progress(self, pipeline_id: str) -> Iterator[Operation]:
        """Yield the operations of a pipeline that are in progress, the newest first."""
        files = sorted((self.folder / pipeline_id).glob("[0-9]*"), reverse=True)
        return (each for each in map(Operation, files) if each.is_in_progress())
