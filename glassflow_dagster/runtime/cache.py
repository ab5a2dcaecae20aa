"""The folder for what is fetched or made once: jars, the Java home of the bundled runtime.

What lies in it is complete or absent. Everything is put together in a temporary folder beside its place and
renamed into it under a lock, so neither a killed process nor two at once leave half of it behind.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from glassflow_dagster.errors import GlassflowError


def cache_folder() -> Path:
    """`$GLASSFLOW_CACHE`, or `~/.cache/glassflow-dagster`; it need not exist yet."""
    return Path(os.environ.get("GLASSFLOW_CACHE") or Path.home() / ".cache" / "glassflow-dagster").absolute()


@contextmanager
def exclusive(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of `folder` (a file beside it); `waiting` is called once when another process has it.

    Raises GlassflowError where the cache cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{folder.name}.lock").open("w")
    except OSError as error:
        raise GlassflowError(
            f"{folder.parent}: cannot be written ({error.strerror}); "
            "make it writable, or set GLASSFLOW_CACHE to another folder"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `folder` when the block ends well, and vanishes otherwise.

    To be called under the folder's lock.
    """
    for left_by_a_killed_process in folder.parent.glob(f".{folder.name}-*"):
        shutil.rmtree(left_by_a_killed_process, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
