"""The component that turns a folder of pipeline definitions into assets: one file, one pipeline.

The definitions keep GlassFlow's format; `defs.yaml` only names their folder.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.pipelines import build_folder_definitions


class PipelineFolder(dg.Component, dg.Model, dg.Resolvable):
    """A folder of pipeline definitions (YAML or JSON), each of which becomes assets, checks and sensors."""

    folder: str = "pipelines"

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build Dagster's definitions for all files; contacts no server."""
        return build_folder_definitions(find_folder(self.folder, Path(context.project_root)))


def find_folder(folder: str, project: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of pipeline definitions: GLASSFLOW_PIPELINES, else `folder` below the working directory.

    When neither exists, it is `folder` below `project`: the checkout, or the installed wheel with its examples.
    Raises `GlassflowError` when GLASSFLOW_PIPELINES is set to something that is no folder.
    """
    from_variable = environment.get("GLASSFLOW_PIPELINES")
    if from_variable and not Path(from_variable).is_dir():
        raise GlassflowError(f"GLASSFLOW_PIPELINES: {from_variable} is not a folder; create it or correct the variable")
    if from_variable:
        return Path(from_variable).absolute()
    in_working_directory = Path(folder).absolute()
    return in_working_directory if in_working_directory.is_dir() else project / folder
