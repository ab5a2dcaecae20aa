"""The cache folder for downloads and build results: jars, Scala classes, the Java home of the bundled runtime.

Every entry is complete or absent: it is written to a temporary folder beside it and renamed under a lock, so neither a
killed process nor two processes at once leave an incomplete entry.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from glassflow_dagster.runtime.file_lock import locked_file


def cache_folder() -> Path:
    """Return `$GLASSFLOW_CACHE`, or `~/.cache/glassflow-dagster`; it may not exist yet."""
    return Path(os.environ.get("GLASSFLOW_CACHE") or Path.home() / ".cache" / "glassflow-dagster").absolute()


@contextmanager
def exclusive(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of `folder` (a file beside it); `waiting` is called once when another process holds it.

    Raises GlassflowError when the cache cannot be written.
    """
    with locked_file(
        folder.with_name(f".{folder.name}.lock"),
        "make it writable, or set GLASSFLOW_CACHE to another folder",
        lambda: folder.parent.mkdir(parents=True, exist_ok=True),
        waiting,
    ):
        yield


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `folder` after the block, or is deleted when the block raises.

    The caller must hold the lock of `folder` (`exclusive`).
    """
    # Left behind by killed processes.
    for abandoned in folder.parent.glob(f".{folder.name}-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def cached(folder: Path, name: str, fill: Callable[[Path], object], waiting: Callable[[], None] = lambda: None) -> Path:
    """Return a file of a folder of the cache; without it, fill the folder first, in one process at a time.

    name: relative to the folder.
    fill: gets a temporary folder, which replaces it.
    waiting: as of `exclusive`.
    """
    file = folder / name
    if not file.exists():
        with exclusive(folder, waiting):
            # The other process may have filled it meanwhile.
            if not file.exists():
                with filled(folder) as temporary:
                    fill(temporary)
    return file
