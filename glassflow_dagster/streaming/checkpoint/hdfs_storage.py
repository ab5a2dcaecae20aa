"""A checkpoint's files in HDFS, by WebHDFS and its client `hdfs`.

fsspec's client creates a file empty and then appends to it; pyarrow's needs Hadoop's native library, which no wheel
has. `storage.py` imports this module only where it is needed.
"""

import getpass
import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import requests
from hdfs import HdfsError, InsecureClient

from glassflow_dagster.config.model.state import State
from glassflow_dagster.streaming.checkpoint.storage import StorageError

T = TypeVar("T")

# Of Hadoop's clients without Kerberos, in the JVM too.
_USER = "HADOOP_USER_NAME"
_NOT_FOUND = "FileNotFoundException"
_REFUSED = frozenset({"AccessControlException", "SecurityException"})
# What a name node answers that starts, or hands over to another one; and what becomes of its connections.
_PASSING = frozenset({"StandbyException", "RetriableException", "SafeModeException"})
# A store that does not answer is asked again for so long, as one of S3 is.
_RETRY_SECONDS = 60.0
_FIRST_RETRY_SECONDS = 10.0  # at a start: a wrong address should show soon
_PAUSE = 0.5
_TIMEOUTS = (5.0, 30.0)  # to connect, and for an answer


class HdfsStorage:
    """A `Storage` (storage.py) in a folder of HDFS.

    A file is written beside its place and renamed, which is one step of the name node's: without `OVERWRITE` it fails
    if the place is taken.
    """

    def __init__(self, state: State, path: str) -> None:
        """Prepare the access, without a request. path: of the root, below the URL of `state`."""
        self._root = f"{state.hdfs_path}/{path.strip('/')}".rstrip("/")
        self._location = f"{state.url.removesuffix(state.hdfs_path)}{self._root}"
        self._server = state.webhdfs_in()
        session = requests.Session()
        # The servers are of the user's own network.
        session.trust_env = False
        user = os.environ.get(_USER) or getpass.getuser()
        self._client = InsecureClient(self._server, user=user, timeout=_TIMEOUTS, session=session)

    @property
    def location(self) -> str:
        """See `Storage`."""
        return self._location

    @property
    def folder(self) -> None:
        """See `Storage`."""
        return

    @property
    def is_shared(self) -> bool:
        """See `Storage`."""
        return True

    def path(self, name: str) -> str:
        """See `Storage`."""
        return f"{self._location}/{name}"

    def require_usable(self) -> None:
        """Raise `StorageError` where WebHDFS does not answer, or refuses access to the folder."""
        self._ask("", self._exists, _FIRST_RETRY_SECONDS)

    def require_atomic_creation(self) -> None:
        """See `Storage`; HDFS promises it."""

    def read(self, name: str) -> bytes:
        """See `Storage`."""

        def read(path: str) -> bytes:
            with self._client.read(path) as stream:
                return bytes(stream.read())

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
        """See `Storage`. If the answer to the rename is lost, the temporary file is gone where it was renamed."""
        temporary = self._write_beside(name, content)

        def rename(path: str) -> bool:
            if not self._exists(temporary):
                return True
            answer = self._client._rename(temporary, destination=path)  # noqa: SLF001 - `rename` takes a folder as the place in which to put it
            return bool(answer.json()["boolean"])

        if not self._ask(name, rename):
            self._ask(name, lambda _: self._client.delete(temporary))
            raise FileExistsError(self.path(name))

    def replace(self, name: str, content: bytes) -> None:
        """See `Storage`."""
        temporary = self._write_beside(name, content)

        def rename(path: str) -> None:
            if self._exists(temporary):
                # The library's own `rename` cannot overwrite.
                self._client._rename(temporary, destination=path, renameoptions="OVERWRITE")  # noqa: SLF001

        self._ask(name, rename)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        self._ask(name, self._client.delete)

    def delete_folder(self, folder: str) -> None:
        """See `Storage`."""
        self._ask(folder, lambda path: self._client.delete(path, recursive=True))

    def _exists(self, path: str) -> bool:
        """Return whether there is a file or a folder; raise the library's errors."""
        try:
            # Without `strict` it would return None for every error.
            self._client.status(path, strict=True)
        except HdfsError as error:
            if error.exception != _NOT_FOUND:
                raise
            return False
        return True

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, and whether each is a folder; none where there is no such folder."""
        try:
            found = self._ask(folder, lambda path: self._client.list(path, status=True))
        except FileNotFoundError:
            return []
        return [(name, status["type"] == "DIRECTORY") for name, status in found]

    def _write_beside(self, name: str, content: bytes) -> str:
        """Write a temporary file beside the place of a file, whose folder is made; return its path."""
        temporary = f"{self._root}/{name}.{uuid.uuid4()}.new"
        self._ask(name, lambda _: self._client.write(temporary, content, overwrite=True))
        return temporary

    def _ask(self, name: str, request: Callable[[str], T], seconds: float = _RETRY_SECONDS) -> T:
        """Return what a request for a file returns; raise the errors of `Storage`, and `StorageError`.

        name: of the file below the root. request: gets its path; it is repeated if nobody answers. seconds: how long.
        """
        path = f"{self._root}/{name}".rstrip("/") or "/"
        deadline = time.monotonic() + seconds
        while True:
            try:
                return request(path)
            except HdfsError as error:
                if error.exception == _NOT_FOUND:
                    raise FileNotFoundError(self.path(name)) from None
                if error.exception not in _PASSING or time.monotonic() > deadline:
                    raise StorageError(self._explain(name, error)) from None
            except (requests.RequestException, ConnectionError) as error:
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
        if error.exception in _REFUSED:
            return (
                f"{self.path(name)}: HDFS refuses access ({reason}); let the user ({_USER}, else the process's own) "
                "write to the folder of the state"
            )
        return f"{self.path(name)}: WebHDFS at {self._server} answered {error.exception}: {reason}"
