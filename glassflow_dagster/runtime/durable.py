"""Names that are on the disk, not only in memory, when a function returns."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk (fsync): names that were created, renamed or linked."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
