"""Accepted requests to replay dead letters: files until they are done, worked off one after the other.

Replays of one pipeline end each other, so they cannot run at once. A request is a file, `.api/replays/ID/TIME-REQUEST`,
so that it is done also where the process ends before. Processes on the same folder of definitions take turns.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

from glassflow_dagster.runtime.file_lock import locked_file
from glassflow_dagster.server.api.files import write_atomically

# Gets the pipeline, the id of the request, and the conditions that together select the dead letters; raises nothing.
Work = Callable[[str, str, list[str]], None]


@dataclass
class ReplayRequests:
    """The requests that are accepted and not done, of all pipelines. folder: of their files."""

    folder: Path
    work: Work
    _working: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def add(self, pipeline_id: str, request_id: str, conditions: Sequence[str]) -> None:
        """Accept a request, which is done after the earlier ones of its pipeline; raises `GlassflowError`."""
        # Ids of requests are letters, digits and -.
        name = f"{time.time_ns():020d}-{request_id}.json"
        write_atomically(self.folder / pipeline_id / name, json.dumps([*conditions]).encode(), 0o600)
        self._begin(pipeline_id)

    def go_on(self) -> None:
        """Begin to work off what earlier processes have accepted and not done."""
        for folder in self.folder.glob("*/"):
            self._begin(folder.name)

    def _begin(self, pipeline_id: str) -> None:
        """Work off a pipeline's requests on a thread, unless one does."""
        with self._lock:
            if pipeline_id in self._working or not self._waiting(pipeline_id):
                return
            self._working.add(pipeline_id)
        Thread(target=self._work_off, args=(pipeline_id,), name=f"replays-{pipeline_id}", daemon=True).start()

    def _work_off(self, pipeline_id: str) -> None:
        # Another process may be at work.
        with locked_file(self.folder / pipeline_id / ".lock", "make it writable"):
            while file := self._next(pipeline_id):
                request_id = file.stem.partition("-")[2]
                self.work(pipeline_id, request_id, json.loads(file.read_text()))
                file.unlink()

    def _next(self, pipeline_id: str) -> Path | None:
        """Return the oldest request of a pipeline; None without one, and then the next begins another thread."""
        with self._lock:
            files = self._waiting(pipeline_id)
            if not files:
                self._working.discard(pipeline_id)
            return files[0] if files else None

    def _waiting(self, pipeline_id: str) -> list[Path]:
        return sorted((self.folder / pipeline_id).glob("[0-9]*.json"))
