"""The folder of pipeline definitions of this project's own code location."""

import os
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from glassflow_dagster.errors import GlassflowError


@dg.template_var
def pipelines_folder(context: dg.ComponentLoadContext) -> str:
    """Return the folder for the template `pipelines_folder` of defs.yaml."""
    return str(find_folder(Path(context.project_root)))


def find_folder(project: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return GLASSFLOW_PIPELINES, else `pipelines` in the working directory.

    When neither exists, it is `pipelines` in `project`: the checkout, or the installed wheel with its examples. Raises
    `GlassflowError` when GLASSFLOW_PIPELINES is set to something that is no folder.
    """
    from_variable = environment.get("GLASSFLOW_PIPELINES")
    if from_variable and not Path(from_variable).is_dir():
        raise GlassflowError(f"GLASSFLOW_PIPELINES: {from_variable} is not a folder; create it or correct the variable")
    if from_variable:
        return Path(from_variable).absolute()
    in_working_directory = Path("pipelines").absolute()
    return in_working_directory if in_working_directory.is_dir() else project / "pipelines"
