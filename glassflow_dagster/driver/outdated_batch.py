"""The open batch where it was begun with another definition, or other column types, than there are now.

Its blocks must be cut again as they were, so it is finished by what it was begun with, before the edit takes effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.types import parse_column_type
from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.streaming.delivery.batch_writer import fits


@dataclass(frozen=True)
class OutdatedBatch:
    """An open batch, and the definition and table that it was begun with; the connections are today's."""

    batch_id: int
    config: PipelineConfig
    table: Table


def find_outdated_batch(config: PipelineConfig, table: Table, checkpoint: Checkpoint) -> OutdatedBatch | None:
    """Return the open batch with what it was begun with; None where there is none, or nothing was edited since.

    Raises `CheckpointError` where the definition that it was begun with is not kept.
    """
    pending = checkpoint.pending_plan()
    if pending is None or fits(pending, config, table):
        return None
    kept = checkpoint.kept_definition()
    old = _with_connections_of(config, kept) if kept else None
    if old is None or old.digest != pending.definition:
        raise CheckpointError(
            f"{checkpoint.folder}: batch {pending.batch_id} was begun with another definition, which is not kept; "
            "take the last edit of the definition back, run once, then edit again"
        )
    return OutdatedBatch(pending.batch_id, old, _with_types(table, pending.types))


def _with_connections_of(config: PipelineConfig, kept: dict[str, Any]) -> PipelineConfig:
    """Return the kept definition, which has no secrets, with the connections of today's."""
    old = PipelineConfig.model_validate(kept)
    connection = {"connection_params": config.connection}
    sources = tuple(source.model_copy(update=connection) for source in old.sources)
    sink = old.sink.model_copy(update={"connection_params": config.sink.connection_params})
    return old.model_copy(update={"sources": sources, "sink": sink})


def _with_types(table: Table, types: Mapping[str, str]) -> Table:
    """Return the table as it was when its mapped columns had these types."""
    before = {name: replace(table.columns[name], type=parse_column_type(text)) for name, text in types.items()}
    return replace(table, columns={**table.columns, **before})
