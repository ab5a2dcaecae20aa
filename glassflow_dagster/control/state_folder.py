"""The folder of all pipelines' state on this host, and that of one pipeline, made ready for its driver."""

import os
from collections.abc import Mapping
from pathlib import Path

from glassflow_dagster.control.heartbeat import make_pipeline_folder, pipeline_folder
from glassflow_dagster.definition.model.state import STATE, is_url
from glassflow_dagster.errors import GlassflowError


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the default local folder of state: GLASSFLOW_STATE, else `.glassflow/state` in the working folder.

    A URL in GLASSFLOW_STATE is the store of the checkpoints; working files remain in the default folder.
    """
    named = environment.get(STATE, "")
    return (Path(named) if named and not is_url(named) else Path(".glassflow") / "state").absolute()


def prepare_folder(state: Path, pipeline_id: str) -> Path:
    """Create the pipeline's folder and return its absolute path; raise `GlassflowError` where it cannot be used."""
    folder = pipeline_folder(state.resolve(), pipeline_id)
    if "," in str(folder):
        # Spark splits its setting for working folders at commas, and knows no way to escape one.
        raise GlassflowError(
            f"{folder}: has a comma in its path, at which Spark would split it; name another folder with --state DIR"
        )
    try:
        make_pipeline_folder(folder)
        (folder / "writable").touch()
        (folder / "writable").unlink()
    except OSError as error:
        raise GlassflowError(
            f"{folder}: cannot be written ({error.strerror}); name another folder with --state DIR"
        ) from None
    return folder
