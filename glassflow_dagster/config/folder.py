"""The definitions of a folder, by file and by pipeline_id."""

import os
from collections.abc import Mapping
from pathlib import Path

from glassflow_dagster.config.definition_text import read_definition
from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.problems import DefinitionError, suggestion
from glassflow_dagster.errors import GlassflowError

DEFINITION_SUFFIXES = (".yaml", ".yml", ".json")


def definition_files(folder: Path) -> list[Path]:
    """List the definitions of a folder, by name; hidden files are those of editors."""
    if not folder.is_dir():
        return []
    shown = (path for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(path for path in shown if path.suffix in DEFINITION_SUFFIXES)


def find_definition(
    name: str, folder: Path, environment: Mapping[str, str] = os.environ
) -> tuple[Path, PipelineConfig]:
    """Find a pipeline by its file or by its pipeline_id in a folder; raises `GlassflowError` when there is none."""
    path = Path(name)
    if path.suffix in DEFINITION_SUFFIXES:
        return path, load_pipeline(path, environment)
    files = definition_files(folder)
    for file in sorted(files, key=lambda f: f.stem != name):
        if pipeline_id(file) == name:
            return file, load_pipeline(file, environment)
    known = [found for file in files if (found := pipeline_id(file))]
    raise GlassflowError(f"{folder}/: no pipeline is called {name!r}; {suggestion(name, known or ['(none)'])}")


def pipeline_id(file: Path) -> str | None:
    """Give the name that a file's pipeline has, whatever else is wrong with it; None where it has none."""
    try:
        named = read_definition(file).get("pipeline_id")
    except DefinitionError:
        return None
    return None if named is None else str(named)
