"""Rules for the store of a checkpoint."""

from collections.abc import Iterator

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.state import State
from glassflow_dagster.config.problems import Problem


def state_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem for what cannot be with a checkpoint in an object store, and for keys that apply to one only."""
    if config.state is None:
        return
    if not config.state.is_object_store:
        for key in State.model_fields:
            if key != "url" and getattr(config.state, key) is not None:
                yield Problem(f"state.{key}", "applies to s3a:// only; remove it")
        return
    if config.pool is not None:
        yield Problem("pool", "state in an object store needs a JVM of its own; remove it")
    for index, source in enumerate(config.sources):
        if source.schema_registry is not None:
            # Its schemas, and the ids that it did not know, are in files beside the checkpoint.
            text = "its schemas are kept in a folder, and the state is in an object store; keep the state in a folder"
            yield Problem(f"sources[{index}].schema_registry", text)
