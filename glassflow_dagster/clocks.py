"""The clock that measures how much time has gone by, whatever the machine's date and time are set to."""

import time

# The one that also goes on while the machine sleeps, where there is one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_seconds() -> float:
    """Seconds since some moment in the past, the same for all processes until the machine starts again."""
    return time.clock_gettime(_CLOCK)
