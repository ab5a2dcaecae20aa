"""Consistent readings of a running pipeline, whose rows are in the table before their batch is in the ledger.

During a batch the table has more rows than the ledger counts, and the next reading may meet the next batch. So readings
are repeated until one is consistent, or until they no longer change, or for a limited time.
"""

import time
from collections.abc import Callable
from typing import TypeVar

STILL_SECONDS = 5.0  # a batch in flight changes the table or the ledger within that time
LONGEST_SECONDS = 60.0  # a busy pipeline pauses between two batches more often than that
INTERVAL = 0.2  # seconds between two readings

Reading = TypeVar("Reading")


def wait_until_stable(
    read: Callable[[], Reading],
    fits: Callable[[Reading], bool],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Reading:
    """Return the first reading that fits, or the last one when readings stop changing or the time is over.

    The limits are `STILL_SECONDS` without a change, and `LONGEST_SECONDS` in all.

    read: reads the figures.
    fits: whether they are consistent.
    clock, pause: for tests.
    """
    begun = unchanged_since = clock()
    reading = read()
    while not fits(reading):
        if clock() - unchanged_since >= STILL_SECONDS or clock() - begun >= LONGEST_SECONDS:
            return reading
        pause(INTERVAL)
        latest = read()
        if latest != reading:
            reading, unchanged_since = latest, clock()
    return reading
