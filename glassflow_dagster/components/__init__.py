"""The components that `dg` lists and `defs.yaml` files name."""

from glassflow_dagster.components.pipeline_folder import PipelineFolder

__all__ = ["PipelineFolder"]
