"""Where a checkpoint's files are: a small protocol, and its implementation for a local folder.

Spark reads and writes its own files by Hadoop's file systems; this is for the files that the product reads and writes
itself. Each store must promise these, and the product uses no more:

| | local folder | S3, Azure (obstore_storage.py) | Google (google_storage.py) | HDFS (hdfs_storage.py) |
|---|---|---|---|---|
| `create` fails if the file exists | a link to a synced file | `If-None-Match: *` | if generation is 0 | rename |
| `replace`: one finds the old or the new content | rename of a synced file | PUT | POST | rename, OVERWRITE |
| durable when the call returns | fsync of file and folder | yes | yes | in the data nodes' memory |
| a file is found as soon as it is written | yes | yes | yes | yes |
| rename of a folder | yes | no: nothing rests on it | no | yes |
"""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.durable import sync

# What file systems without hard links answer.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class StorageError(GlassflowError):
    """The store of a checkpoint cannot be used; the text says why, and what to do."""


class Storage(Protocol):
    """The files of one checkpoint. Their names are relative to its root, with slashes: `offsets/3`."""

    @property
    def location(self) -> str:
        """The root as Spark is given it, and as errors name it: a path, or a URL."""

    @property
    def folder(self) -> Path | None:
        """The root where it is a local folder; else None."""

    @property
    def is_shared(self) -> bool:
        """Whether drivers of other hosts may use it, whom a lock of this host does not keep out."""

    def require_usable(self) -> None:
        """Raise `GlassflowError` where the store does not answer, or refuses access; a folder is checked elsewhere."""

    def require_atomic_creation(self) -> None:
        """Raise `GlassflowError` where the store would let two writers create the same file."""

    def path(self, name: str) -> str:
        """Return a file as errors name it."""

    def read(self, name: str) -> bytes:
        """Return the content of a file; raise `FileNotFoundError` without it."""

    def exists(self, name: str) -> bool:
        """Return whether there is a file."""

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a folder, without their path; none where there is no such folder."""

    def walk(self, folder: str = "") -> Iterator[str]:
        """Yield all files below a folder, with their path from the root."""

    def create(self, name: str, content: bytes) -> None:
        """Write a new file; raise `FileExistsError` if there is one, also one that is written at the same time."""

    def replace(self, name: str, content: bytes) -> None:
        """Write a file; a reader finds the old content or the new one, also after a crash."""

    def delete(self, name: str) -> None:
        """Remove a file, if there is one."""

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all that is in it, if there is one."""


class LocalStorage:
    """A `Storage` in a folder, which need not exist yet. is_shared: of a file system that other hosts may use, too."""

    def __init__(self, folder: Path, *, is_shared: bool = False) -> None:
        self._folder = folder
        self._is_shared = is_shared

    @property
    def location(self) -> str:
        """See `Storage`."""
        return str(self._folder)

    @property
    def folder(self) -> Path:
        """See `Storage`."""
        return self._folder

    @property
    def is_shared(self) -> bool:
        """See `Storage`."""
        return self._is_shared

    def require_usable(self) -> None:
        """See `Storage`."""

    def require_atomic_creation(self) -> None:
        """See `Storage`."""

    def path(self, name: str) -> str:
        """See `Storage`."""
        return str(self._folder / name)

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        return (self._folder / name).read_bytes()

    def exists(self, name: str) -> bool:
        """See `Storage`."""
        return (self._folder / name).exists()

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""
        try:
            return os.listdir(self._folder / folder)  # noqa: PTH208 - names are all that is wanted
        except FileNotFoundError:
            return []

    def walk(self, folder: str = "") -> Iterator[str]:
        """See `Storage`."""
        for file in sorted((self._folder / folder).rglob("*")):
            if file.is_file():
                yield file.relative_to(self._folder).as_posix()

    def create(self, name: str, content: bytes) -> None:
        """See `Storage`. A link to the synced file is one step, which fails if there is a file by that name."""
        file = self._folder / name
        temporary = file.with_name(f"{file.name}.{uuid.uuid4()}.new")
        _write_synced(temporary, content)
        try:
            os.link(temporary, file)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A crash may leave a part of the file, whose checksum then does not fit.
            with file.open("xb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
        finally:
            temporary.unlink()
        sync(file.parent)

    def replace(self, name: str, content: bytes) -> None:
        """See `Storage`."""
        file = self._folder / name
        temporary = file.with_suffix(".new")
        _write_synced(temporary, content)
        temporary.replace(file)
        sync(file.parent)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        (self._folder / name).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        """See `Storage`."""
        shutil.rmtree(self._folder / folder, ignore_errors=True)


def _write_synced(file: Path, content: bytes) -> None:
    """Write a file whose bytes are on the disk when this returns (fsync); create its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
