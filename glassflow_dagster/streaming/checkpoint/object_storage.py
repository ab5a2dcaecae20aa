"""A checkpoint's files in an S3 bucket, by obstore.

obstore (Rust's object_store) creates by `If-None-Match: *`, and is one wheel without dependencies. pyarrow.fs has no
conditional writes. s3fs has them, but its aiobotocore needs another botocore than current boto3, which comes with the
tokens for Amazon MSK. `storage.py` imports this module only where it is needed.
"""

import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import obstore
from obstore import exceptions
from obstore.store import S3Store

from glassflow_dagster.config.model.state import State
from glassflow_dagster.streaming.checkpoint.remote_storage import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    FIRST_RETRY_SECONDS,
    RETRY_SECONDS,
    WRITER,
    BucketStorage,
    below,
    last_parts,
)
from glassflow_dagster.streaming.checkpoint.storage import StorageError

T = TypeVar("T")

_NO_BUCKET, _NO_OBJECT = "NoSuchBucket", "NoSuchKey"
_WRONG_CLOCK = "RequestTimeTooSkewed"
# In the text of an error: what a server has answered, and what begins its internal details.
_S3_CODE = re.compile(r"<Code>(\w+)</Code>")
_HTTP_STATUS = re.compile(r"status code: (\d{3}[\w ]*)")
_DETAILS = "Debug source:"

_MOST_RETRIES = 10
_FIRST_RETRIES = 2  # at a start


class ObjectStorage(BucketStorage):
    """A `Storage` (storage.py) below a prefix of a bucket."""

    def __init__(self, state: State, path: str) -> None:
        """Prepare the access, without a request. path: of the root, below the URL of `state`."""
        super().__init__("s3a", state, path)
        self._state = state
        self._store = _open(state, RETRY_SECONDS, _MOST_RETRIES)

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
        own = {WRITER: writer}
        try:
            self._ask(name, lambda key: obstore.put(self._store, key, content, mode="create", attributes=own))
        except FileExistsError:
            found = self._ask(name, lambda key: obstore.get(self._store, key).attributes)
            if found.get(WRITER) != writer:
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
        store = _open(self._state, FIRST_RETRY_SECONDS, _FIRST_RETRIES)
        self._ask("", lambda key: next(iter(obstore.list(store, below(key), chunk_size=1)), None))

    def require_atomic_creation(self) -> None:
        """Raise `StorageError` unless the store refuses to create what exists: two drivers could share a checkpoint.

        Writes an object and removes it; for a new checkpoint, since a store does not lose the ability.
        """
        probe = f"glassflow/probe-{uuid.uuid4()}"
        self.create(probe, b"1")
        try:
            self.create(probe, b"2")
        except FileExistsError:
            return
        finally:
            self.delete(probe)
        raise StorageError(
            f"{self.location}: {self._server} ignores conditional writes (If-None-Match: *), without which two drivers "
            "could use one checkpoint; keep the state in a store that has them, such as Amazon S3 or MinIO"
        )

    def _keys(self, folder: str) -> list[str]:
        """See `BucketStorage`."""
        found = self._ask(folder, lambda key: obstore.list(self._store, below(key)).collect())
        return [entry["path"] for entry in found if entry["size"]]

    @property
    def _server(self) -> str:
        return self._state.endpoint_in() or "Amazon S3"

    def _ask(self, name: str, request: Callable[[str], T]) -> T:
        """Return what a request for an object returns; raise the errors of `Storage`, and `StorageError`.

        name: of the object below the root. request: gets its key in the bucket.
        """
        key = self._key(name)
        path = f"{self._bucket_url}/{key}"
        try:
            return request(key)
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            # A HEAD has the HTTP status only. Not found can be more than the object: the bucket, the user.
            if _code(error) != _NO_OBJECT and not _code(error).startswith("404"):
                raise StorageError(self._explain(path, error)) from None
            raise FileNotFoundError(path) from None
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise FileExistsError(path) from None
        except exceptions.BaseError as error:
            raise StorageError(self._explain(path, error)) from None

    def _explain(self, path: str, error: Exception) -> str:
        """Return in one line why a request for an object failed, and what to do."""
        code = _code(error)
        if code == _NO_BUCKET:
            return (
                f"{path}: bucket {self._state.bucket} does not exist on {self._server}; create it, or correct the URL "
                "of the state"
            )
        if code == _WRONG_CLOCK:
            return (
                f"{path}: {self._server} refuses requests of this host ({code}), whose clock differs from its own by "
                "more than 15 minutes; set the clock, best with NTP"
            )
        if (status := _HTTP_STATUS.search(str(error))) and status[1].startswith(("401", "403")):
            return (
                f"{path}: {self._server} refuses access ({code}); check the credentials (AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, a role, or state.access_key_id), and grant them s3:ListBucket on the bucket, "
                "and s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"
            )
        if code:
            return (
                f"{path}: {self._server} answered {code}; check state.region and state.endpoint, or start the pipeline "
                "again when the store works"
            )
        return (
            f"{path}: {self._server} does not answer ({_first_line(error)}); check the endpoint (state.endpoint, or "
            "AWS_ENDPOINT_URL) and the network, then start the pipeline again"
        )


def _code(error: Exception) -> str:
    """Return S3's code of an error, such as NoSuchBucket, else the HTTP status, such as "403 Forbidden"; else ""."""
    text = str(error).partition(_DETAILS)[0]
    found = _S3_CODE.search(text) or _HTTP_STATUS.search(text)
    return found[1].strip() if found else ""


def _first_line(error: Exception) -> str:
    """Return the reason in the first line of an error, without the chain of the calls that failed."""
    return " ".join(str(error).partition(_DETAILS)[0].split()).rpartition(" - ")[2]


def _open(state: State, retry_seconds: float, retries: int) -> S3Store:
    """Return obstore's view of the bucket, which asks a server that does not answer again for so long."""
    endpoint = state.endpoint_in()
    config: dict[str, Any] = {"region": state.region_in()}
    if endpoint:
        config |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
    if state.access_key_id and state.secret_access_key:
        config |= {
            "access_key_id": state.access_key_id,
            "secret_access_key": state.secret_access_key.get_secret_value(),
        }
        if state.session_token:
            config["session_token"] = state.session_token.get_secret_value()
    return S3Store(
        state.bucket,
        **config,
        client_options={
            "allow_http": bool(endpoint and endpoint.startswith("http:")),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "timeout": timedelta(seconds=ANSWER_SECONDS),
        },
        retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=retry_seconds)},
    )
