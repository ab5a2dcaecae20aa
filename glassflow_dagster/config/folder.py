"""Find the definitions in a folder, by file name and by pipeline_id."""

import os
from collections.abc import Mapping
from pathlib import Path

from glassflow_dagster.config.definition_text import read_definition
from glassflow_dagster.config.load import LoadedDefinition, load_definition
from glassflow_dagster.config.problems import DefinitionError, suggestion
from glassflow_dagster.errors import GlassflowError

DEFINITION_SUFFIXES = (".yaml", ".yml", ".json")


def definition_files(folder: Path) -> list[Path]:
    """Return the definition files of a folder by name, without hidden ones; empty when there is no folder."""
    if not folder.is_dir():
        return []
    visible = (path for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(path for path in visible if path.suffix in DEFINITION_SUFFIXES)


def find_definition(name: str, folder: Path, environment: Mapping[str, str] = os.environ) -> LoadedDefinition:
    """Load a pipeline's definition. name: a file's path, or a pipeline_id in the folder.

    Raises `GlassflowError` when there is no such pipeline, and `DefinitionError` when the definition is invalid.
    """
    path = Path(name)
    if path.suffix in DEFINITION_SUFFIXES:
        return load_definition(path, environment)
    files = definition_files(folder)
    for file in sorted(files, key=lambda f: f.stem != name):
        if pipeline_id(file) == name:
            return load_definition(file, environment)
    ids = [file_id for file in files if (file_id := pipeline_id(file))]
    raise GlassflowError(f"{folder}/: no pipeline is called {name!r}; {suggestion(name, ids or ['(none)'])}")


def pipeline_id(file: Path) -> str | None:
    """Return the pipeline_id of a file, even of an otherwise invalid definition; None when it has none."""
    try:
        value = read_definition(file).get("pipeline_id")
    except DefinitionError:
        return None
    return None if value is None else str(value)
