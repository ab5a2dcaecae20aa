"""Files and names that are on the disk, not only in memory, when a function returns."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Write a file's bytes to the disk (fsync), or a folder's entries: names that were created, renamed or linked.

    Raises `OSError`.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
