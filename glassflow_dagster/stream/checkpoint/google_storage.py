"""A checkpoint's files in a bucket of Google Cloud Storage, by Google's client.

obstore speaks Google's XML interface, which no server but Google's has whole; this client and Hadoop's connector speak
the JSON one. `storage.py` imports this module only where it is needed.
"""

import uuid
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import requests
from google.api_core import exceptions
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.cloud.storage import Blob, Bucket, Client
from google.cloud.storage.retry import DEFAULT_RETRY

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.stream.checkpoint.remote_storage import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    FIRST_RETRY_SECONDS,
    RETRY_SECONDS,
    WRITER,
    BucketStorage,
    below,
    last_parts,
)
from glassflow_dagster.stream.checkpoint.storage import StorageError

T = TypeVar("T")

# The client wants a project, by which buckets are listed and created; neither is done.
_PROJECT = "none"
# In Google's text for an object that is not found because its bucket is not.
_NO_BUCKET = "bucket does not exist"
_TIMEOUTS = (CONNECT_SECONDS, ANSWER_SECONDS)


class GoogleStorage(BucketStorage):
    """A `Storage` (storage.py) below a prefix of a bucket."""

    def __init__(self, state: State, path: str) -> None:
        """Prepare the access, without a request. path: of the root, below the URL of `state`."""
        super().__init__(state, path)
        self._bucket_name = state.bucket
        self._endpoint = state.google_server_in()

    def require_usable(self) -> None:
        """Raise `StorageError` where the bucket does not exist or may not be listed, or its server does not answer."""

        def list_one(_: str, retry: Retry) -> None:
            for _blob in self._bucket.list_blobs(
                prefix=below(self._root), max_results=1, timeout=_TIMEOUTS, retry=retry
            ):
                return

        try:
            self._ask("", list_one, FIRST_RETRY_SECONDS)
        except FileNotFoundError:
            raise StorageError(self._without_bucket(self.location)) from None

    def require_atomic_creation(self) -> None:
        """See `Storage`; Google promises it."""

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        return bytes(
            self._ask(name, lambda key, retry: self._blob(key).download_as_bytes(timeout=_TIMEOUTS, retry=retry))
        )

    def exists(self, name: str) -> bool:
        """See `Storage`."""
        return bool(self._ask(name, lambda key, retry: self._blob(key).exists(timeout=_TIMEOUTS, retry=retry)))

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""

        def find(key: str, retry: Retry) -> list[str]:
            found = self._bucket.list_blobs(prefix=below(key), delimiter="/", timeout=_TIMEOUTS, retry=retry)
            # The folders are known when all pages are read.
            files = [blob.name for blob in found if blob.size]
            return [*files, *found.prefixes]

        return last_parts(self._ask(folder, find))

    def create(self, name: str, content: bytes) -> None:
        """See `Storage`. The answer to an upload may be lost, and the upload repeated: then the object is its own."""
        writer = str(uuid.uuid4())

        def upload(key: str, retry: Retry) -> None:
            blob = self._blob(key)
            blob.metadata = {WRITER: writer}
            # No generation: there is no such object.
            blob.upload_from_string(content, if_generation_match=0, timeout=_TIMEOUTS, retry=retry)

        try:
            self._ask(name, upload)
        except FileExistsError:
            if self._ask(name, self._writer) != writer:
                raise

    def replace(self, name: str, content: bytes) -> None:
        """See `Storage`."""

        def upload(key: str, retry: Retry) -> None:
            self._blob(key).upload_from_string(content, timeout=_TIMEOUTS, retry=retry)

        self._ask(name, upload)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        try:
            self._ask(name, lambda key, retry: self._blob(key).delete(timeout=_TIMEOUTS, retry=retry))
        except FileNotFoundError:
            return

    def delete_folder(self, folder: str) -> None:
        """See `Storage`."""
        for name in self.walk(folder):
            self.delete(name)

    def _keys(self, folder: str) -> list[str]:
        """See `BucketStorage`."""

        def find(key: str, retry: Retry) -> list[str]:
            found = self._bucket.list_blobs(prefix=below(key), timeout=_TIMEOUTS, retry=retry)
            return [blob.name for blob in found if blob.size]

        return self._ask(folder, find)

    def _writer(self, key: str, retry: Retry) -> str | None:
        """Return which call has created an object."""
        blob = self._blob(key)
        blob.reload(timeout=_TIMEOUTS, retry=retry)
        writer: str | None = (blob.metadata or {}).get(WRITER)
        return writer

    def _blob(self, key: str) -> Blob:
        return self._bucket.blob(key)

    @cached_property
    def _bucket(self) -> Bucket:
        """Return the bucket, without a request for it; raise `StorageError` without credentials."""
        options = {"api_endpoint": self._endpoint} if self._endpoint else {}
        # A server of tests, on the same host or network, has no credentials.
        is_plain = (self._endpoint or "").startswith("http:")
        credentials = AnonymousCredentials() if is_plain else None  # type: ignore[no-untyped-call]
        try:
            client = Client(project=_PROJECT, credentials=credentials, client_options=options)
        except DefaultCredentialsError as error:
            raise StorageError(
                f"{self.location}: no credentials of Google's ({_first_line(error)}); set "
                "GOOGLE_APPLICATION_CREDENTIALS to the file of a service account, which must be on the driver's host, "
                "or run on a machine with one"
            ) from None
        return client.bucket(self._bucket_name)

    def _ask(self, name: str, request: Callable[[str, Retry], T], seconds: float = RETRY_SECONDS) -> T:
        """Return what a request for an object returns; raise the errors of `Storage`, and `StorageError`.

        name: of the object below the root.
        request: gets its key in the bucket, and how to repeat it.
        seconds: how long it is repeated if nobody answers.
        """
        key = self._key(name)
        path = f"{self._bucket_url}/{key}"
        try:
            return request(key, DEFAULT_RETRY.with_timeout(seconds))
        except exceptions.NotFound as error:
            if _NO_BUCKET in error.message:
                raise StorageError(self._without_bucket(path)) from None
            raise FileNotFoundError(path) from None
        except exceptions.PreconditionFailed:
            raise FileExistsError(path) from None
        except (exceptions.RetryError, requests.RequestException, ConnectionError, TransportError) as error:
            raise StorageError(
                f"{path}: {self._server} does not answer ({_first_line(error)}); check the endpoint (state.endpoint) "
                "and the network, then start the pipeline again"
            ) from None
        except (exceptions.Forbidden, exceptions.Unauthorized, GoogleAuthError) as error:
            raise StorageError(
                f"{path}: {self._server} refuses access ({_first_line(error)}); check the credentials, and grant them "
                "the role Storage Object User on the bucket"
            ) from None
        except exceptions.GoogleAPIError as error:
            raise StorageError(f"{path}: {self._server}: {_first_line(error)}; start the pipeline again") from None

    def _without_bucket(self, path: str) -> str:
        return (
            f"{path}: bucket {self._bucket_name} does not exist on {self._server}; create it, or correct the URL of "
            "the state"
        )

    @property
    def _server(self) -> str:
        return self._endpoint or "Google Cloud Storage"


def _first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return (str(error).splitlines() or [type(error).__name__])[0]
