"""The tests' only way to wait: for a condition, with a deadline."""

import time
from collections.abc import Callable
from typing import Any

DEADLINE = 240.0  # seconds; a driver takes 15 to start on two busy cores, and 60 if these are slow ones
_PAUSE = 0.05  # seconds


def wait_until(
    condition: Callable[[], Any], what: str, seconds: float = DEADLINE, evidence: Callable[[], object] = str
) -> Any:
    """Poll until a condition is true and return its value; on failure, report `evidence()` too."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what} {evidence()}"
        time.sleep(_PAUSE)
