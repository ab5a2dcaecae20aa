"""Rules for the store of a checkpoint."""

from collections.abc import Iterator

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.state import State
from glassflow_dagster.definition.problems import Problem

# A key of the state -> which stores have it, where that is not S3 alone.
_USERS = {"endpoint": "s3a://, gs://, abfs:// and hdfs://"}


def state_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem for what cannot be with a checkpoint that is in no folder, and for keys of other stores."""
    if config.state is None:
        return
    if not config.state.is_s3:
        own = {"url"} if config.state.folder else {"url", "endpoint"}
        for key in State.model_fields:
            if key not in own and getattr(config.state, key) is not None:
                yield Problem(f"state.{key}", f"applies to {_USERS.get(key, 's3a://')} only; remove it")
    if config.state.bucket and ";" in (config.state.endpoint or ""):
        yield Problem("state.endpoint", "a bucket has one; name one")
    if config.state.folder is not None:
        return
    if config.pool is not None:
        yield Problem("pool", "state in a store that is no folder needs a JVM of its own; remove it")
    for index, source in enumerate(config.sources):
        if source.schema_registry is not None:
            # Its schemas, and the ids that it did not know, are in files beside the checkpoint.
            text = "its schemas are kept in a folder, but the state is elsewhere; keep the state in a folder"
            yield Problem(f"sources[{index}].schema_registry", text)
