"""The part of a checkpoint's storage that is the same for all stores that obstore reaches.

obstore (Rust's object_store) creates by `If-None-Match: *`, and is one wheel without dependencies. pyarrow.fs has no
conditional writes. s3fs has them, but its aiobotocore needs another botocore than current boto3, which comes with the
tokens for Amazon MSK.
"""

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import obstore
from obstore import exceptions
from obstore.store import AzureStore, S3Store

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.stream.checkpoint.remote_storage import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    FIRST_RETRY_SECONDS,
    RETRY_SECONDS,
    BucketStorage,
    below,
    last_parts,
)
from glassflow_dagster.stream.checkpoint.storage import StorageError

T = TypeVar("T")

# In the text of an error: what a server has answered, and what begins its internal details.
_CODE = re.compile(r"<Code>(\w+)</Code>")
_HTTP_STATUS = re.compile(r"code: (\d{3}[\w ]*)")
_DETAILS = "Debug source:"

_MOST_RETRIES = 10
_FIRST_RETRIES = 2  # at a start


class ObstoreStorage(BucketStorage, ABC):
    """A `Storage` (storage.py) below a prefix of a bucket."""

    # The name of the metadata that says which call has created an object.
    _writer_name: ClassVar[str]
    # The server's codes for an object that does not exist.
    _no_object: ClassVar[str]

    def __init__(self, state: State, path: str) -> None:
        """Prepare the access, without a request. path: of the root, below the URL of `state`."""
        super().__init__(state, path)
        self._state = state
        self._store = self._open(RETRY_SECONDS, _MOST_RETRIES)

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        return bytes(self._ask(name, lambda key: obstore.get(self._store, key).bytes()))

    def exists(self, name: str) -> bool:
        """See `Storage`."""
        try:
            self._ask(name, lambda key: obstore.head(self._store, key))
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""
        found = self._ask(folder, lambda key: obstore.list_with_delimiter(self._store, below(key)))
        return last_parts([*(entry["path"] for entry in found["objects"] if entry["size"]), *found["common_prefixes"]])

    def create(self, name: str, content: bytes) -> None:
        """See `Storage`. The answer to a PUT may be lost, and the PUT repeated: then the object there is its own."""
        writer = str(uuid.uuid4())
        own = {self._writer_name: writer}
        try:
            self._ask(name, lambda key: obstore.put(self._store, key, content, mode="create", attributes=own))
        except FileExistsError:
            found = self._ask(name, lambda key: obstore.get(self._store, key).attributes)
            if found.get(self._writer_name) != writer:
                raise

    def replace(self, name: str, content: bytes) -> None:
        """See `Storage`."""
        self._ask(name, lambda key: obstore.put(self._store, key, content))

    def delete(self, name: str) -> None:
        """See `Storage`."""
        try:
            self._ask(name, lambda key: obstore.delete(self._store, key))
        except FileNotFoundError:
            return

    def delete_folder(self, folder: str) -> None:
        """See `Storage`."""
        keys = self._keys(folder)
        if keys:
            self._ask(folder, lambda _: obstore.delete(self._store, keys))

    def require_usable(self) -> None:
        """Raise `StorageError` where the bucket does not exist or may not be listed, or its server does not answer."""
        store = self._open(FIRST_RETRY_SECONDS, _FIRST_RETRIES)
        self._ask("", lambda key: next(iter(obstore.list(store, below(key), chunk_size=1)), None))

    def _keys(self, folder: str) -> list[str]:
        """See `BucketStorage`."""
        found = self._ask(folder, lambda key: obstore.list(self._store, below(key)).collect())
        return [entry["path"] for entry in found if entry["size"]]

    @abstractmethod
    def _open(self, retry_seconds: float, retries: int) -> S3Store | AzureStore:
        """Return obstore's view of the bucket, which asks a server that does not answer again for so long."""

    @abstractmethod
    def _explain(self, path: str, error: Exception) -> str:
        """Return in one line why a request for an object failed, and what to do."""

    def _ask(self, name: str, request: Callable[[str], T]) -> T:
        """Return what a request for an object returns; raise the errors of `Storage`, and `StorageError`.

        name: of the object below the root.
        request: gets its key in the bucket.
        """
        key = self._key(name)
        path = f"{self._bucket_url}/{key}"
        try:
            return request(key)
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            # A HEAD has the HTTP status only. Not found can be more than the object: the bucket, the user.
            if code(error) != self._no_object and not code(error).startswith("404"):
                raise StorageError(self._explain(path, error)) from None
            raise FileNotFoundError(path) from None
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise FileExistsError(path) from None
        except exceptions.BaseError as error:
            raise StorageError(self._explain(path, error)) from None


def options(endpoint: str | None, retry_seconds: float, retries: int) -> dict[str, Any]:
    """Return obstore's options for the access to a server. endpoint: its URL, None for the store's own."""
    return {
        "client_options": {
            "allow_http": bool(endpoint and endpoint.startswith("http:")),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "timeout": timedelta(seconds=ANSWER_SECONDS),
        },
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=retry_seconds)},
    }


def code(error: Exception) -> str:
    """Return the server's code of an error, such as NoSuchBucket, else the HTTP status, such as "403 Forbidden".

    "" where no server has answered.
    """
    text = str(error).partition(_DETAILS)[0]
    found = _CODE.search(text) or _HTTP_STATUS.search(text)
    return found[1].strip() if found else ""


def is_refusal(error: Exception) -> bool:
    """Return whether a server has refused access (HTTP status 401 or 403)."""
    status = _HTTP_STATUS.search(str(error))
    return bool(status and status[1].startswith(("401", "403")))


def first_line(error: Exception) -> str:
    """Return the reason in the first line of an error, without the chain of the calls that failed."""
    return " ".join(str(error).partition(_DETAILS)[0].split()).rpartition(" - ")[2]
