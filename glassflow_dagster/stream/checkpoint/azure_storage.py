"""A checkpoint's files in a container of Azure's storage. `storage.py` imports this module only where it is needed.

Its files are blobs, also in an account with a hierarchical namespace, which has both interfaces: Put Blob is one step,
with `If-None-Match: *` for a new one. Of Azure's Data Lake interface an upload shows a file before its content.
"""

from typing import Any

from obstore.store import AzureStore

from glassflow_dagster.definition.model.state import AZURE_KEYS, azure_key_in
from glassflow_dagster.stream.checkpoint.obstore_storage import ObstoreStorage, code, first_line, is_refusal, options

_NO_CONTAINER = "ContainerNotFound"


class AzureStorage(ObstoreStorage):
    """A `Storage` (storage.py) below a prefix of a container."""

    # The name of metadata has to be one that C# allows.
    _writer_name = "glassflow_writer"
    _no_object = "BlobNotFound"

    def require_atomic_creation(self) -> None:
        """See `Storage`; Azure promises it."""

    def _explain(self, path: str, error: Exception) -> str:
        """See `ObstoreStorage`."""
        server, found = self._state.azure_account_url_in(), code(error)
        if found == _NO_CONTAINER:
            return (
                f"{path}: container {self._state.bucket} does not exist on {server}; create it, or correct the URL of "
                "the state"
            )
        if is_refusal(error):
            return (
                f"{path}: {server} refuses access ({found}); check the credentials ({AZURE_KEYS[0]}, AZURE_CLIENT_ID "
                "and AZURE_CLIENT_SECRET, or an identity of the host), and grant an identity the role Storage Blob "
                "Data Contributor on the container"
            )
        if found:
            return f"{path}: {server} answered {found}; start the pipeline again when the store works"
        return (
            f"{path}: {server} does not answer ({first_line(error)}); check the account in the URL of the state, "
            "state.endpoint and the network, then start the pipeline again"
        )

    def _open(self, retry_seconds: float, retries: int) -> AzureStore:
        """See `ObstoreStorage`. Without a key obstore takes what Azure's variables name, or the host's identity."""
        state, key = self._state, azure_key_in()
        config: dict[str, Any] = {"account_name": state.azure_account, "endpoint": state.azure_account_url_in()}
        if key:
            config["account_key"] = key
        return AzureStore(state.bucket, **config, **options(state.azure_server_in(), retry_seconds, retries))
