"""An open batch that was begun before the definition, or the target's column types, were changed.

Its blocks must be the same when it is repeated, so it is finished with the old definition and types first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import parse_written_type
from glassflow_dagster.stores.clickhouse.table import Table, find_table
from glassflow_dagster.stores.clickhouse.tables import ddl
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.stream.delivery.batch_writer import fits


@dataclass(frozen=True)
class OutdatedBatch:
    """An open batch, and the definition that it was begun with; the connections are the current ones.

    types: the ClickHouse types of the mapped columns of each of its sink's tables.
    """

    batch_id: int
    config: PipelineConfig
    types: tuple[Mapping[str, str], ...]

    def tables(self, current: Sequence[Table]) -> tuple[Table, ...]:
        """Return the tables with the types that their columns had then. current: those of its sink, as they are now."""
        return tuple(_with_types(table, types) for table, types in zip(current, self.types, strict=True))


def find_outdated_batch(
    config: PipelineConfig, tables: Sequence[Table], checkpoint: Checkpoint
) -> OutdatedBatch | None:
    """Return the open batch with its old definition and types; None if no batch is open, or nothing has changed since.

    tables: of the definition's sink. The batch's plan has the old definition's digest, the checkpoint has the
    definition itself. Raises `CheckpointError` where the checkpoint does not have the definition that the batch was
    begun with.
    """
    pending = checkpoint.pending_plan()
    if pending is None:
        return None
    kept_definition = checkpoint.kept_definition()
    old = _with_connections_of(config, kept_definition) if kept_definition else None
    # A further topic of a pattern moves the others in the order of a batch, on which its blocks depend.
    if fits(pending, config, tables) and (old is None or old.topics == config.topics):
        return None
    if old is None or old.digest != pending.definition:
        raise CheckpointError(
            f"{checkpoint.location}: batch {pending.batch_id} was started with another definition, which is not "
            "stored; undo the last edit of the definition, run once, then edit again"
        )
    return OutdatedBatch(pending.batch_id, old, tuple(planned.types for planned in pending.tables))


def find_tables_of(client: Client, batch: OutdatedBatch) -> list[Table]:
    """Return the tables that the batch is written to, as they are now: those of its definition's sink.

    Raises `CheckpointError` with the statement to run where one was dropped since, or a column that the batch fills.
    """
    tables, problems = [], []
    for of_table, types in zip(batch.config.by_table, batch.types, strict=True):
        table = find_table(client, *of_table.sink.full_table)
        if table is None:
            problems.append(f"{of_table.sink.table_name} was dropped since: {ddl.create_target(of_table)}")
            continue
        tables.append(table)
        dropped = [ddl.NewColumn("", name, kind) for name, kind in types.items() if name not in table.columns]
        problems += [
            f"column {column.name!r} was dropped since: {ddl.add_column(table.database, table.name, column)}"
            for column in dropped
        ]
    if problems:
        statements = "; ".join(problems)
        raise CheckpointError(
            f"{batch.config.pipeline_id}: batch {batch.batch_id} was begun before the definition was edited, and must "
            f"be written in full to what it was begun with, but {statements}; run the statement, start the pipeline, "
            "which finishes the batch, then drop it again"
        )
    return tables


# What does not decide rows or blocks, but how the tables are reached and prepared.
_AS_NOW = ("connection_params", "delivery", "deduplication_window", "bookkeeping_engine", "cluster", "shared_table")


def _with_connections_of(config: PipelineConfig, kept_definition: dict[str, Any]) -> PipelineConfig:
    """Return the definition that the checkpoint kept, which has no secrets, with the connections of `config`.

    So are the settings by which tables are prepared: an edit of them is often the remedy for what stopped the pipeline.
    """
    old = PipelineConfig.model_validate(kept_definition)
    connection = {"connection_params": config.connection}
    sources = tuple(source.model_copy(update=connection) for source in old.sources)
    sink = old.sink.model_copy(update={name: getattr(config.sink, name) for name in _AS_NOW})
    return old.model_copy(update={"sources": sources, "sink": sink, "checks": config.checks})


def _with_types(table: Table, types: Mapping[str, str]) -> Table:
    """Return the table with other types for its mapped columns. types: column name -> ClickHouse type."""
    columns = {name: replace(table.columns[name], type=parse_written_type(text)) for name, text in types.items()}
    return replace(table, columns={**table.columns, **columns})
