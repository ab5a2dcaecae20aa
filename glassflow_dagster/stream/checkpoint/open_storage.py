"""Opens the storage of a checkpoint: a local or shared folder, or a store, whose library is loaded then."""

from pathlib import Path

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.checkpoint.storage import LocalStorage, Storage

# The folder of a pipeline's checkpoint, within the pipeline's.
_CHECKPOINT = "checkpoint"


def open_storage(state: State | None, folder: Path, pipeline_id: str) -> Storage:
    """Return the storage of a pipeline's checkpoint, without a request.

    folder: the pipeline's local one.
    state: of the definition; None for the local folder.
    Raises `GlassflowError` where a library is missing.
    """
    if state is None:
        return LocalStorage(folder / _CHECKPOINT)
    if state.folder is not None:
        return LocalStorage(state.folder / pipeline_id / _CHECKPOINT, is_shared=True)
    return _remote_storage(state, f"{pipeline_id}/{_CHECKPOINT}")


def stored_pipelines(state: State | None, folder: Path) -> tuple[str, ...]:
    """Return the ids of the pipelines with a checkpoint in a store, sorted; without a store, in the local folder.

    Raises `GlassflowError` for a store that cannot be used.
    """
    root = folder if state is None else state.folder
    if root is not None:
        return tuple(sorted(entry.parent.name for entry in root.glob(f"*/{_CHECKPOINT}")))
    assert state is not None
    storage = _remote_storage(state, "")
    storage.require_usable()
    return tuple(sorted(name for name in storage.names("") if storage.names(f"{name}/{_CHECKPOINT}")))


def _remote_storage(state: State, path: str) -> Storage:
    """Return the storage at a path of a store that is no folder; raise `GlassflowError` without its library."""
    # Libraries that pipelines with a local checkpoint do not need.
    extra = "hdfs" if state.is_hdfs else "gs" if state.is_google else "abfs" if state.is_azure else "s3"
    try:
        if state.is_hdfs:
            from glassflow_dagster.stream.checkpoint.hdfs_storage import HdfsStorage  # noqa: PLC0415

            return HdfsStorage(state, path)
        if state.is_google:
            from glassflow_dagster.stream.checkpoint.google_storage import GoogleStorage  # noqa: PLC0415

            return GoogleStorage(state, path)
        if state.is_azure:
            from glassflow_dagster.stream.checkpoint.azure_storage import AzureStorage  # noqa: PLC0415

            return AzureStorage(state, path)
        from glassflow_dagster.stream.checkpoint.object_storage import ObjectStorage  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise GlassflowError(
            f"{state.url}: state in this store needs the library {error.name}; run: pip install "
            f"'glassflow-dagster[{extra}]'"
        ) from None
    return ObjectStorage(state, path)
