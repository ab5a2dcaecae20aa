"""The audit log: two JSON lines for each request that changes something, before it is done and after."""

import json
import os
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glassflow_dagster.errors import GlassflowError


@dataclass
class AuditLog:
    """Appends to a file that only its owner can read."""

    file: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, **request: Any) -> str:
        """Write the line of a request that is about to be done; return its id, for `end`. Raises `GlassflowError`.

        A request whose line cannot be written is not done.
        """
        request_id = uuid.uuid4().hex
        self._append({"request": request_id, "event": "received", **request})
        return request_id

    def end(self, request_id: str, **outcome: Any) -> None:
        """Write the line of what became of a request; raises `GlassflowError`. request_id: of `begin`."""
        self._append({"request": request_id, "event": "done", **outcome})

    def _append(self, entry: dict[str, Any]) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, **entry}, ensure_ascii=False) + "\n"
        try:
            with self._lock:
                self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # One write, so that lines of several processes do not mix.
                descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(descriptor, line.encode(errors="backslashreplace"))
                finally:
                    os.close(descriptor)
        except OSError as error:
            raise GlassflowError(f"{self.file}: cannot be written ({error.strerror}); nothing is changed") from None
