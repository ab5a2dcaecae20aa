"""Looking at a pipeline that runs: rows are there before the ledger says so.

A batch under way makes a table look too full, and the next look may find the next batch. So one looks until the
figures fit once; or until they no longer move, or for long enough, and takes that for the truth.
"""

import time
from collections.abc import Callable
from typing import TypeVar

STILL_SECONDS = 5.0  # a batch under way changes the table within that time, or its ledger row comes
LONGEST_SECONDS = 60.0  # a busy pipeline pauses between two batches more often than that
INTERVAL = 0.2  # seconds between two looks

Look = TypeVar("Look")


def wait_until_stable(
    look: Callable[[], Look],
    fits: Callable[[Look], bool],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Look:
    """Return the first look that fits, or the last one when looks stopped changing or time is over."""
    begun = since = clock()
    found = look()
    while not fits(found):
        if clock() - since >= STILL_SECONDS or clock() - begun >= LONGEST_SECONDS:
            return found
        pause(INTERVAL)
        latest = look()
        if latest != found:
            found, since = latest, clock()
    return found
