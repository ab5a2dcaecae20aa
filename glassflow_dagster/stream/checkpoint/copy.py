"""Copies a checkpoint from one storage to another, and verifies the copy."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.checkpoint.checkpoint import IDENTITY_FILE
from glassflow_dagster.stream.checkpoint.storage import Storage

# Requests at a time: an object store takes some 50 ms for each, however small the file is.
_AT_ONCE = 16


class CopyError(GlassflowError):
    """A checkpoint cannot be copied, or its copy is not the same; the text says what to do."""


@dataclass(frozen=True)
class Copied:
    """What was copied and verified. bytes: of all files."""

    files: int
    bytes: int


def copy_checkpoint(source: Storage, target: Storage, report: Callable[[str], None]) -> Copied:
    """Copy all files of a checkpoint that no driver uses, read the copy back, and compare the SHA-256 of each file.

    report: receives progress. Raises `CopyError` where the source is empty, the target is not, or a file differs or
    has changed meanwhile, and `GlassflowError` for a store that does not work. Then no driver starts on the target.
    """
    names = _files_of(source, target)
    if not names:
        raise CopyError(f"{source.location}: has no checkpoint; name the state that the pipeline ran with")
    if target.names(""):
        raise CopyError(f"{target.location}: is not empty; remove it, or name another place")
    target.require_atomic_creation()
    report(f"copying {len(names):,} files from {source.location} to {target.location}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        first = [name for name in names if name != IDENTITY_FILE]
        sums = dict(zip(first, pool.map(lambda name: _copy(source, target, name), first), strict=True))
        report("reading both again to compare them")
        _compare(source, sums, _files_of(source, target), pool, known={IDENTITY_FILE})
        _compare(target, sums, _files_of(target, source), pool)
    # Last, as no driver starts on a checkpoint without it.
    for name in set(names) - set(first):
        sums[name] = _copy(source, target, name)
        if _sum(target.read(name)) != sums[name]:
            target.delete(name)
            raise CopyError(_changed(target, name))
    return Copied(len(names), sum(size for _, size in sums.values()))


def _compare(
    storage: Storage,
    sums: Mapping[str, tuple[str, int]],
    found: Collection[str],
    pool: ThreadPoolExecutor,
    known: Collection[str] = (),
) -> None:
    """Raise `CopyError` unless a storage has the files that were copied, with these sums.

    found: the files that it has.
    known: those of them that are not compared.
    """
    if differing := sums.keys() ^ (set(found) - set(known)):
        raise CopyError(_changed(storage, min(differing)))
    for name, again in zip(sums, pool.map(lambda name: _sum(storage.read(name)), sums), strict=True):
        if again != sums[name]:
            raise CopyError(_changed(storage, name))


def _files_of(storage: Storage, other: Storage) -> list[str]:
    """Return the files of a storage that a copy to or from the other one has, sorted.

    Hadoop keeps checksums beside the files of a local folder. In an object store, where files are replaced without
    them, they would be wrong; Hadoop also reads files without them.
    """
    both_local = storage.folder is not None and other.folder is not None
    return sorted(name for name in storage.walk() if both_local or not _is_hadoop_checksum(name))


def _is_hadoop_checksum(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.startswith(".") and file.endswith(".crc")


def _copy(source: Storage, target: Storage, name: str) -> tuple[str, int]:
    """Copy a file; return the SHA-256 of what was read, and its size."""
    content = source.read(name)
    target.create(name, content)
    return _sum(content)


def _sum(content: bytes) -> tuple[str, int]:
    """Return the SHA-256 of a file, and its size."""
    return hashlib.sha256(content).hexdigest(), len(content)


def _changed(storage: Storage, name: str) -> str:
    return (
        f"{storage.path(name)}: is not what was copied: a driver has written meanwhile, or the store is damaged; stop "
        "the pipeline, remove the copy, and copy again"
    )
