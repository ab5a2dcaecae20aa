"""A checkpoint's files in HDFS, by WebHDFS and its client `hdfs`.

fsspec's client creates a file empty and then appends to it; pyarrow's needs Hadoop's native library, which no wheel
has. `storage.py` imports this module only where it is needed.
"""

import os
import pwd
import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import requests
from hdfs import HdfsError, InsecureClient

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.stream.checkpoint.remote_storage import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    FIRST_RETRY_SECONDS,
    RETRY_SECONDS,
    RemoteStorage,
)
from glassflow_dagster.stream.checkpoint.storage import StorageError

T = TypeVar("T")

# Of Hadoop's clients without Kerberos, in the JVM too.
_USER = "HADOOP_USER_NAME"
_NOT_FOUND = "FileNotFoundException"
_REFUSED = frozenset({"AccessControlException", "SecurityException"})
# What does not pass by itself. All else may: a name node that starts or hands over, data nodes that are away.
_LASTING = _REFUSED | {
    "IllegalArgumentException", "HadoopIllegalArgumentException", "UnsupportedOperationException",
    "InvalidPathException", "ParentNotDirectoryException", "FileAlreadyExistsException",
    "NSQuotaExceededException", "DSQuotaExceededException",
}  # fmt: skip
# The library's text for the HTTP status 401, whose errors have no name.
_NO_LOGIN = "Authentication failure"
# A file that is being written, or was when its writer died.
_TEMPORARY = re.compile(r"^\..+\.[0-9a-f-]{36}\.new$")
# Why a write failed whose own file is not there any more.
_GONE = "the file that was written for it is gone; let nothing else remove files there, then start the pipeline again"
_CHUNK = 1 << 20  # bytes
_PAUSE = 0.5  # seconds before a request is repeated
_TIMEOUTS = (CONNECT_SECONDS, ANSWER_SECONDS)


class HdfsStorage(RemoteStorage):
    """A `Storage` (storage.py) in a folder of HDFS.

    A file is written beside its place and renamed, which is one step of the name node's: without `OVERWRITE` it fails
    if the place is taken. HDFS numbers its files, and a renamed one keeps its number: so a writer whose answer was lost
    recognizes its own file.
    """

    def __init__(self, state: State, path: str) -> None:
        """Prepare the access, without a request. path: of the root, below the URL of `state`."""
        self._root = f"{state.hdfs_path}/{path.strip('/')}".rstrip("/")
        super().__init__(f"{state.url.removesuffix(state.hdfs_path)}{self._root}")
        self._server = state.webhdfs_in()
        session = requests.Session()
        # The servers are of the user's own network.
        session.trust_env = False
        self._client = InsecureClient(self._server, user=_user(), timeout=_TIMEOUTS, session=session)

    def require_usable(self) -> None:
        """Raise `StorageError` where WebHDFS does not answer, or refuses access to the folder."""
        self._ask("", self._exists, FIRST_RETRY_SECONDS)

    def require_atomic_creation(self) -> None:
        """See `Storage`; HDFS promises it."""

    def read(self, name: str) -> bytes:
        """See `Storage`."""

        def read(path: str) -> bytes:
            # In chunks the library translates the errors of a connection that breaks meanwhile.
            with self._client.read(path, chunk_size=_CHUNK) as chunks:
                return b"".join(chunks)

        return self._ask(name, read)

    def exists(self, name: str) -> bool:
        """See `Storage`."""
        return self._ask(name, self._exists)

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""
        return [name for name, _ in self._entries(folder)]

    def walk(self, folder: str = "") -> Iterator[str]:
        """See `Storage`."""
        for name, is_folder in sorted(self._entries(folder)):
            path = f"{folder}/{name}".lstrip("/")
            if is_folder:
                yield from self.walk(path)
            else:
                yield path

    def create(self, name: str, content: bytes) -> None:
        """See `Storage`."""
        temporary, number = self._write_beside(name, content)

        def rename(path: str) -> bool:
            # The library's own `rename` takes a folder for the place in which to put the file.
            answer = self._client._rename(temporary, destination=path)  # noqa: SLF001
            # Also where an earlier try has renamed it, and its answer was lost.
            return bool(answer.json()["boolean"]) or self._is_own(name, number)

        if not self._ask(name, rename):
            self._ask(name, lambda _: self._client.delete(temporary))
            raise FileExistsError(self.path(name))

    def replace(self, name: str, content: bytes) -> None:
        """See `Storage`."""
        temporary, number = self._write_beside(name, content)

        def rename(path: str) -> None:
            try:
                # The library's own `rename` cannot overwrite.
                self._client._rename(temporary, destination=path, renameoptions="OVERWRITE")  # noqa: SLF001
            except HdfsError as error:
                if error.exception != _NOT_FOUND:
                    raise
                if not self._is_own(name, number):
                    raise StorageError(f"{self.path(name)}: {_GONE}") from None

        self._ask(name, rename)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        self._ask(name, self._client.delete)

    def delete_folder(self, folder: str) -> None:
        """See `Storage`."""
        self._ask(folder, lambda path: self._client.delete(path, recursive=True))

    def _exists(self, path: str) -> bool:
        return self._number(path) is not None

    def _number(self, path: str) -> int | None:
        """Return the number of a file or a folder; None where there is none. Raises the library's errors."""
        try:
            # Without `strict` it would return None for every error.
            return int(self._client.status(path, strict=True)["fileId"])
        except HdfsError as error:
            if error.exception != _NOT_FOUND:
                raise
            return None

    def _is_own(self, name: str, number: int) -> bool:
        """Return whether the file with a name has this number; raise `StorageError` where there is none."""
        found = self._number(f"{self._root}/{name}")
        if found is None:
            raise StorageError(f"{self.path(name)}: {_GONE}")
        return found == number

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, and whether each is a folder; none where there is no such folder."""
        try:
            found = self._ask(folder, lambda path: self._client.list(path, status=True))
        except FileNotFoundError:
            return []
        return [(name, status["type"] == "DIRECTORY") for name, status in found if not _TEMPORARY.match(name)]

    def _write_beside(self, name: str, content: bytes) -> tuple[str, int]:
        """Write a temporary file beside the place of a file, whose folder is made; return its path and its number."""
        folder, _, last = f"{self._root}/{name}".rpartition("/")

        def write(_: str) -> tuple[str, int]:
            # Of this try alone: an earlier one, whose answer was lost, may still be under way.
            temporary = f"{folder}/.{last}.{uuid.uuid4()}.new"
            self._client.write(temporary, content)
            status = self._client.status(temporary)
            if status["length"] != len(content):
                raise HdfsError(f"{temporary} has {status['length']} of {len(content)} bytes")
            return temporary, int(status["fileId"])

        try:
            return self._ask(name, write)
        except FileNotFoundError:
            raise StorageError(f"{self.path(name)}: {_GONE}") from None

    def _ask(self, name: str, request: Callable[[str], T], seconds: float = RETRY_SECONDS) -> T:
        """Return what a request for a file returns; raise the errors of `Storage`, and `StorageError`.

        name: of the file below the root.
        request: gets its path; it is repeated if nobody answers.
        seconds: how long.
        """
        path = f"{self._root}/{name}".rstrip("/") or "/"
        deadline = time.monotonic() + seconds
        while True:
            try:
                return request(path)
            except HdfsError as error:
                if error.exception == _NOT_FOUND:
                    raise FileNotFoundError(self.path(name)) from None
                if _is_lasting(error) or time.monotonic() > deadline:
                    raise StorageError(self._explain(name, error)) from None
            # KeyError: the library's, for an answer that is no WebHDFS server's.
            except (requests.RequestException, ConnectionError, KeyError) as error:
                if time.monotonic() > deadline:
                    raise StorageError(
                        f"{self.path(name)}: WebHDFS at {self._server} does not answer ({type(error).__name__}); check "
                        "the address (state.endpoint, or GLASSFLOW_WEBHDFS) and the network, then start the pipeline "
                        "again"
                    ) from None
            time.sleep(_PAUSE)

    def _explain(self, name: str, error: HdfsError) -> str:
        """Return in one line why a request failed, and what to do."""
        reason = str(error.message).strip().partition("\n")[0]
        if reason.startswith(_NO_LOGIN):
            return f"{self.path(name)}: WebHDFS at {self._server} asks for a login; Kerberos is not supported"
        if error.exception in _REFUSED:
            return (
                f"{self.path(name)}: HDFS refuses access ({reason}); let the user ({_USER}, else the process's own) "
                "write to the folder of the state"
            )
        return f"{self.path(name)}: WebHDFS at {self._server} answered {error.exception or 'an error'}: {reason}"


def _is_lasting(error: HdfsError) -> bool:
    """Return whether an error stays as it is, however often the request is repeated."""
    return error.exception in _LASTING or str(error.message).startswith(_NO_LOGIN)


def _user() -> str:
    """Return the user as Hadoop's client in the JVM determines it, without Kerberos; raises `StorageError`."""
    if user := os.environ.get(_USER):
        return user
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise StorageError(f"the user {os.geteuid()} of this process has no name for HDFS; set {_USER}") from None
