"""A checkpoint's files in an S3 bucket. `storage.py` imports this module only where it is needed."""

import uuid
from typing import Any

from obstore.store import S3Store

from glassflow_dagster.stream.checkpoint.obstore_storage import ObstoreStorage, code, first_line, is_refusal, options
from glassflow_dagster.stream.checkpoint.remote_storage import WRITER
from glassflow_dagster.stream.checkpoint.storage import StorageError

_NO_BUCKET = "NoSuchBucket"
_WRONG_CLOCK = "RequestTimeTooSkewed"


class ObjectStorage(ObstoreStorage):
    """A `Storage` (storage.py) below a prefix of a bucket."""

    _writer_name = WRITER
    _no_object = "NoSuchKey"

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

    @property
    def _server(self) -> str:
        return self._state.endpoint_in() or "Amazon S3"

    def _explain(self, path: str, error: Exception) -> str:
        """See `ObstoreStorage`."""
        found = code(error)
        if found == _NO_BUCKET:
            return (
                f"{path}: bucket {self._state.bucket} does not exist on {self._server}; create it, or correct the URL "
                "of the state"
            )
        if found == _WRONG_CLOCK:
            return (
                f"{path}: {self._server} refuses requests of this host ({found}), whose clock differs from its own by "
                "more than 15 minutes; set the clock, best with NTP"
            )
        if is_refusal(error):
            return (
                f"{path}: {self._server} refuses access ({found}); check the credentials (AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, a role, or state.access_key_id), and grant them s3:ListBucket on the bucket, "
                "and s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"
            )
        if found:
            return (
                f"{path}: {self._server} answered {found}; check state.region and state.endpoint, or start the "
                "pipeline again when the store works"
            )
        return (
            f"{path}: {self._server} does not answer ({first_line(error)}); check the endpoint (state.endpoint, or "
            "AWS_ENDPOINT_URL) and the network, then start the pipeline again"
        )

    def _open(self, retry_seconds: float, retries: int) -> S3Store:
        """See `ObstoreStorage`."""
        state = self._state
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
        return S3Store(state.bucket, **config, **options(endpoint, retry_seconds, retries))
