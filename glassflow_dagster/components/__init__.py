"""The Dagster components of this project, for `dg` and `defs.yaml` files."""

from glassflow_dagster.components.pipeline_folder import PipelineFolder

__all__ = ["PipelineFolder"]
