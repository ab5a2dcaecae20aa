"""Definitions that the tests of the target table share."""

from pathlib import Path
from typing import Any

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig

PIPELINES = Path(__file__).parents[3] / "pipelines"


def sms_status(fields: dict[str, dict[str, Any]] | None = None, **sink: Any) -> PipelineConfig:
    """Return the shipped sms_status pipeline; `fields` changes declared fields by name, other keywords the sink."""
    config = load_pipeline(PIPELINES / "sms_status.yaml", {})
    changed = tuple(f.model_copy(update=(fields or {}).get(f.name, {})) for f in config.source.schema_fields)
    source = config.source.model_copy(update={"schema_fields": changed})
    parts = config.sink.model_dump(exclude={"connection_params"}) | sink
    connection = parts.pop("connection_params", config.sink.connection_params)
    new_sink = type(config.sink).model_validate({**parts, "connection_params": connection})
    return config.model_copy(update={"sources": (source,), "sink": new_sink})
