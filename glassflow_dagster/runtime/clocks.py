"""A monotonic clock, which changes of the machine's date and time do not affect."""

import time

# CLOCK_BOOTTIME also counts the time that the machine is suspended; not every system has it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_seconds() -> float:
    """Return seconds since an arbitrary moment, the same for all processes until the machine restarts."""
    return time.clock_gettime(_CLOCK)
