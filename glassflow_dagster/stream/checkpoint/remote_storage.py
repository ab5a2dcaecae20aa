"""What the storages of a checkpoint share that are no folder of this host."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from glassflow_dagster.definition.model.state import State

# The name of the metadata that says which call has created an object of a bucket.
WRITER = "glassflow-writer"

# A store that does not answer is asked again for so long; S3 recovers within seconds.
RETRY_SECONDS = 60.0
FIRST_RETRY_SECONDS = 10.0  # at a start: a wrong address should show soon
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0  # how long one request waits


class RemoteStorage:
    """The part of a `Storage` (storage.py) that is the same for all stores."""

    def __init__(self, location: str) -> None:
        """location: the URL of the root."""
        self._location = location.rstrip("/")

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


class BucketStorage(RemoteStorage, ABC):
    """The part that is the same for all buckets: a file's name becomes an object's key."""

    def __init__(self, state: State, path: str) -> None:
        """path: of the root, below the URL of `state`."""
        assert state.bucket
        self._bucket_url = state.bucket_url
        self._root = "/".join(part for part in (state.prefix, path.strip("/")) if part)
        super().__init__(f"{self._bucket_url}/{self._root}")

    def walk(self, folder: str = "") -> Iterator[str]:
        """See `Storage`."""
        for key in self._keys(folder):
            yield key[len(self._root) :].lstrip("/")

    @abstractmethod
    def _keys(self, folder: str) -> list[str]:
        """Return the keys of all objects below a folder, without those that only mark a folder.

        These are empty, as none of a checkpoint's files is.
        """

    def _key(self, name: str) -> str:
        """Return the key of an object by its name below the root; that of the root for ""."""
        return "/".join(part for part in (self._root, name) if part)


def below(key: str) -> str | None:
    """Return what the keys of a folder begin with; None for the bucket's own."""
    return f"{key}/" if key else None


def last_parts(keys: list[str]) -> list[str]:
    """Return the names of objects and folders, without their path, by their keys."""
    return [key.rstrip("/").rpartition("/")[2] for key in keys]
