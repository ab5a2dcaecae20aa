"""The component that turns a folder of pipeline definitions into assets: one file, one pipeline.

The definitions stay in GlassFlow's format; `defs.yaml` only says where they are.
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
        """Build the definitions of all files; asks no server."""
        return build_folder_definitions(find_folder(self.folder, Path(context.project_root)))


def find_folder(folder: str, project: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Find the definitions: where GLASSFLOW_PIPELINES says, else in the working folder, else in the project.

    The last is the checkout, or what an installed wheel brought: its examples, until there is a folder of one's own.
    Raises `GlassflowError` when GLASSFLOW_PIPELINES names no folder.
    """
    named = environment.get("GLASSFLOW_PIPELINES")
    if named and not Path(named).is_dir():
        raise GlassflowError(f"GLASSFLOW_PIPELINES: {named} is no folder; create it or correct the variable")
    if named:
        return Path(named).absolute()
    own = Path(folder).absolute()
    return own if own.is_dir() else project / folder
