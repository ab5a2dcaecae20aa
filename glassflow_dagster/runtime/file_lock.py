"""The lock of a file, by which processes and threads of a host take turns; it goes with the process that holds it."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from glassflow_dagster.errors import GlassflowError


def _nothing() -> None:
    """Do nothing."""


@contextmanager
def locked_file(
    file: Path, remedy: str, make: Callable[[], object] = _nothing, waiting: Callable[[], object] = _nothing
) -> Iterator[None]:
    """Hold the lock of a file for the block; create the file if it is missing.

    remedy: what to do where the file cannot be written, for the `GlassflowError`.
    make: makes the folder of the file.
    waiting: is called once where another one holds the lock.
    """
    try:
        make()
        lock = file.open("w")
    except OSError as error:
        raise GlassflowError(f"{file.parent}: cannot be written ({error.strerror}); {remedy}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
