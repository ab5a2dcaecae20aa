"""The lock `launch` in a pipeline's folder: launches of a pipeline by this host wait for each other.

It is held from before the last driver is ended until the new one is up. So whoever sees no driver meanwhile knows that
one is about to run. The lock goes with the process that holds it.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassflow_dagster.control.heartbeat import make_pipeline_folder
from glassflow_dagster.runtime.file_lock import locked_file

_NAME = "launch"


@contextmanager
def launching(folder: Path) -> Iterator[None]:
    """Wait for other launches of the pipeline, then hold the lock for the block; create the folder if it is missing.

    Raises `GlassflowError` for a folder that cannot be written.
    """
    with locked_file(folder / _NAME, "choose another folder for state", lambda: make_pipeline_folder(folder)):
        yield


def is_launching(folder: Path) -> bool:
    """Return whether a launch of the pipeline is under way, by this process or another one; False where unreadable."""
    try:
        with (folder / _NAME).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
