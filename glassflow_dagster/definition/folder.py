"""Find the definitions in a folder, by file name and by pipeline_id."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from glassflow_dagster.definition.definition_text import read_definition
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import DefinitionError, suggestion
from glassflow_dagster.definition.shared_tables import Writer
from glassflow_dagster.errors import GlassflowError

DEFINITION_SUFFIXES = (".yaml", ".yml", ".json")
# The stem of the file that declares a Dagster component; too short for a pipeline_id.
_COMPONENT = "defs"


def definition_files(folder: Path) -> list[Path]:
    """Return the definition files of a folder by name, without hidden ones; empty when there is no folder.

    A component's `defs.yaml` may stand beside them.
    """
    if not folder.is_dir():
        return []
    visible = (path for path in folder.iterdir() if not path.name.startswith(".") and path.stem != _COMPONENT)
    return sorted(path for path in visible if path.suffix in DEFINITION_SUFFIXES)


def find_definition(name: str, folder: Path, environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Load a pipeline's definition. name: a file's path, or a pipeline_id in the folder.

    Raises `GlassflowError` when there is no such pipeline, and `DefinitionError` when the definition is invalid.
    """
    path = Path(name)
    if path.suffix in DEFINITION_SUFFIXES:
        return load_pipeline(path, environment)
    files = definition_files(folder)
    # The file with this name first: usually it is the one, and the others need not be read.
    for file in sorted(files, key=lambda file: file.stem != name):
        if pipeline_id(file) == name:
            return load_pipeline(file, environment)
    ids = [file_id for file in files if (file_id := pipeline_id(file))]
    raise GlassflowError(f"{folder}/: no pipeline is called {name!r}; {suggestion(name, ids or ['(none)'])}")


def writers_in(folder: Path, environment: Mapping[str, str] = os.environ) -> list[Writer]:
    """Return what the valid definitions of a folder write to."""
    found = []
    for file in definition_files(folder):
        with suppress(GlassflowError):
            found.append(Writer.of(load_pipeline(file, environment)))
    return found


def pipeline_id(file: Path) -> str | None:
    """Return the pipeline_id of a file, even of an otherwise invalid definition; None when it has none."""
    try:
        value = read_definition(file).get("pipeline_id")
    except DefinitionError:
        return None
    return None if value is None else str(value)
