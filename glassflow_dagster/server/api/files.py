"""The definition files of a folder: found, written atomically, and each version of them kept.

Beside them the folder `.api`, which only its owner can read, has what the API keeps: `history/ID/N.yaml` (every version
from 1 on, without gaps, the last one being the current), `secrets/ID/`, and a lock.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from glassflow_dagster.definition.definition_text import parse_definition
from glassflow_dagster.definition.folder import definition_files
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.definition.yaml_text import write_yaml
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.durable import sync
from glassflow_dagster.runtime.file_lock import locked_file

PRIVATE = ".api"
# Ids become names of folders. Others are invalid anyway.
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


@dataclass(frozen=True)
class Stored:
    """A definition file as it is now.

    raw: its parsed content.
    changed: the time of its last change, since 1970.
    """

    pipeline_id: str
    file: Path
    text: bytes
    raw: Mapping[str, Any]
    changed: float

    @property
    def etag(self) -> str:
        """The entity tag of the file's content, quoted as in HTTP."""
        return etag_of(self.text)


@dataclass(frozen=True)
class Version:
    """One version of a definition in the history. written: the time at which it became the current one, since 1970."""

    number: int
    file: Path
    written: float

    @property
    def text(self) -> bytes:
        """The file's content at that time."""
        return self.file.read_bytes()


def etag_of(text: bytes) -> str:
    """Return the entity tag of a content."""
    return f'"{hashlib.sha256(text).hexdigest()[:32]}"'


@dataclass
class DefinitionFiles:
    """The definition files of a folder. Writing methods need `locked`."""

    folder: Path
    _read: dict[Path, tuple[tuple[int, int, int], Stored | None]] = field(default_factory=dict)
    _mutex: Lock = field(default_factory=Lock)

    @property
    def private(self) -> Path:
        """The folder of what the API keeps."""
        return self.folder / PRIVATE

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, among the threads and processes that write in it; raises `GlassflowError`."""

        def make() -> None:
            _make_folder(self.private)
            # The definitions may be in a repository, the secrets must not.
            (self.private / ".gitignore").write_text("*\n")

        with locked_file(self.private / "lock", "make it writable, or choose another --pipelines", make):
            yield

    def all(self) -> list[Stored]:
        """Return the definitions, one of each id, by id; files without an id that can be one are left out."""
        found: dict[str, Stored] = {}
        files = definition_files(self.folder)
        for stored in filter(None, map(self._stored, files)):
            # As `find_definition`: the file that is named like its pipeline goes before others.
            if stored.pipeline_id not in found or stored.file.stem == stored.pipeline_id:
                found[stored.pipeline_id] = stored
        with self._mutex:
            for gone in self._read.keys() - {*files}:
                del self._read[gone]
        return [found[name] for name in sorted(found)]

    def find(self, pipeline_id: str) -> Stored | None:
        """Return a pipeline's definition, None where there is none."""
        return next((stored for stored in self.all() if stored.pipeline_id == pipeline_id), None)

    def versions(self, pipeline_id: str) -> list[Version]:
        """Return the versions in the history, ascending; without a content that was changed by hand since."""
        folder = self._history(pipeline_id)
        files = [file for file in folder.iterdir() if file.stem.isdecimal()] if folder.is_dir() else []
        return [Version(int(file.stem), file, file.stat().st_mtime) for file in sorted(files, key=_number)]

    def next_version(self, pipeline_id: str, current: Stored | None) -> int:
        """Return the number of the version that will be written next, after the current content."""
        versions = self.versions(pipeline_id)
        last = versions[-1].number if versions else 0
        return last + 1 if current is None or _is_kept(versions, current) else last + 2

    def write(self, pipeline_id: str, number: int, definition: Mapping[str, Any], current: Stored | None) -> Stored:
        """Write a version, in the history and as the definition, whose file keeps its name and mode."""
        file = current.file if current else self.folder / f"{pipeline_id}.yaml"
        return self.write_text(pipeline_id, number, _text(file, definition), current)

    def write_text(self, pipeline_id: str, number: int, text: bytes, current: Stored | None) -> Stored:
        """Write a version that is a file's text already."""
        file = current.file if current else self.folder / f"{pipeline_id}.yaml"
        if current:
            self._keep(current)
        write_atomically(self._history(pipeline_id) / f"{number}{file.suffix}", text, _FILE_MODE)
        write_atomically(file, text, file.stat().st_mode & 0o777 if current else 0o644)
        stored = self._stored(file)
        assert stored
        return stored

    def remove(self, current: Stored) -> None:
        """Remove a definition and its secrets; its versions stay."""
        self._keep(current)
        with _explained(current.file):
            current.file.unlink(missing_ok=True)
        shutil.rmtree(self.secrets_folder(current.pipeline_id), ignore_errors=True)
        (self.consumed_folder / f"{current.pipeline_id}.json").unlink(missing_ok=True)

    @property
    def consumed_folder(self) -> Path:
        """The folder of the positions of those that consume dead letters."""
        return self.private / "consumed"

    def secrets_folder(self, pipeline_id: str) -> Path:
        """Return the folder of a pipeline's secrets."""
        return self.private / "secrets" / pipeline_id

    def write_secret(self, pipeline_id: str, name: str, value: str) -> None:
        """Write a secret to a file of its own."""
        # Readers remove one line end.
        write_atomically(self.secrets_folder(pipeline_id) / name, f"{value}\n".encode(), _FILE_MODE)

    def _keep(self, current: Stored) -> None:
        """Make the current content a version, if it is none: it was written by hand."""
        versions = self.versions(current.pipeline_id)
        if _is_kept(versions, current):
            return
        number = versions[-1].number + 1 if versions else 1
        kept = self._history(current.pipeline_id) / f"{number}{current.file.suffix}"
        write_atomically(kept, current.text, _FILE_MODE)
        os.utime(kept, (current.changed, current.changed))

    def _history(self, pipeline_id: str) -> Path:
        return self.private / "history" / pipeline_id

    def _stored(self, file: Path) -> Stored | None:
        """Return a file's definition; None for a file that is gone, unreadable, or has no id."""
        with suppress(OSError):
            stat = file.stat()
            key = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            with self._mutex:
                known = self._read.get(file)
            if known is None or known[0] != key:
                known = (key, _parsed(file, file.read_bytes(), stat.st_mtime))
                with self._mutex:
                    self._read[file] = known
            return known[1]
        return None


def _is_kept(versions: list[Version], current: Stored) -> bool:
    return bool(versions) and versions[-1].text == current.text


def _parsed(file: Path, text: bytes, changed: float) -> Stored | None:
    try:
        raw = parse_definition(file, text.decode())
    except (DefinitionError, UnicodeDecodeError):
        return None
    pipeline_id = str(raw.get("pipeline_id"))
    return Stored(pipeline_id, file, text, raw, changed) if _SAFE_ID.fullmatch(pipeline_id) else None


def _text(file: Path, definition: Mapping[str, Any]) -> bytes:
    if file.suffix == ".json":
        return (json.dumps(definition, indent=2, ensure_ascii=False) + "\n").encode()
    return write_yaml(dict(definition)).encode()


def _number(file: Path) -> int:
    return int(file.stem)


def _make_folder(folder: Path) -> None:
    """Create a folder, and those above it, of which those in `.api` are for its owner only."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def write_atomically(file: Path, content: bytes, mode: int) -> None:
    """Write a file such that readers, and whoever comes after a crash, see the old content or the new one.

    Raises `GlassflowError` where it cannot be written.
    """
    with _explained(file):
        if not file.parent.is_dir():
            file.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        # A file that others see under this name may be a link to it.
        target = file.resolve()
        temporary = target.with_name(f".{target.name}.new")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as written:
            os.fchmod(written.fileno(), mode)
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
        temporary.replace(target)
        sync(target.parent)


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Raise an error of the file system as `GlassflowError`."""
    try:
        yield
    except OSError as error:
        raise GlassflowError(
            f"{file}: cannot be written ({error.strerror}); make the folder writable, and free space if there is none"
        ) from error
