"""Checks that a pipeline may start with a new checkpoint: nothing of it has been written before.

The ledger shows whether the pipeline has written. An empty table does not: its rows may have gone on to views, merged
or expired. Two first starts at the same time, on different state folders, are detected by their rows in
`glassflow_epochs`: the later one continues only if the earlier one has written nothing.
"""

from collections.abc import Sequence

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.fencing import Epoch, read_rival_starts
from glassflow_dagster.stores.bookkeeping.totals import read_totals
from glassflow_dagster.stores.clickhouse.identifiers import full_name
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.table import Table, count_by_table
from glassflow_dagster.stores.clickhouse.tables.views import find_written_tables
from glassflow_dagster.stream.checkpoint.checkpoint import CheckpointError


def require_nothing_written(client: Client, config: PipelineConfig) -> None:
    """Raise `CheckpointError` if the ledger has batches of the pipeline: a new checkpoint would write them again."""
    if read_totals(client, config.sink.connection_params.database, config.pipeline_id).batches:
        tables = " and ".join(sink.table_name for sink in config.sink.by_table)
        raise CheckpointError(
            f"{config.pipeline_id} has no checkpoint in this state folder, but it has written to {tables} before; name "
            "the state folder it ran with (--state DIR), rebuild the checkpoint from the ledger, the topic and the "
            "table (glassflow-dagster run FILE --rebuild-state), or "
            "read the topics from their beginning into empty tables (glassflow-dagster run FILE --start-over)"
        )


def require_alone(client: Client, config: PipelineConfig, tables: Sequence[Table], epoch: Epoch) -> None:
    """Raise `CheckpointError` if another new checkpoint of the pipeline was started and may have written rows.

    It has written none if the ledger has no batch of it, and each of the sink's tables has as many rows as when it was
    started; the number of rows proves that only for plain tables without views, and for the tables of that start.
    tables: the sink's.
    epoch: of this start; drivers of earlier epochs write no more.
    """
    # The starts of the pipeline's other checkpoints, the oldest first.
    rivals = read_rival_starts(client, epoch)
    if not rivals:
        return
    first, has_batches = rivals[0], any(rival.closed for rival in rivals)
    rows_prove_it = all(
        table.is_plain and not find_written_tables(client, table.database, table.name).views for table in tables
    )
    if not has_batches and rows_prove_it and count_by_table(client, tables) == first.rows_by_table:
        return
    raise CheckpointError(
        f"{config.pipeline_id} was started with another checkpoint, on host {first.host} with its state in "
        f"{first.folder} (since {first.since} UTC), and {' or '.join(table.full_name for table in tables)} may have "
        "rows of a batch that this one would read again. Name that state folder (--state DIR); if it is lost, empty "
        f"{'the table' if len(tables) == 1 else 'these tables'} and run with --start-over"
    )


def require_empty(client: Client, config: PipelineConfig, tables: Sequence[Table]) -> None:
    """Raise `CheckpointError`, with TRUNCATE statements to run, if a target or a table behind its views has rows.

    Not with these statements where other pipelines have rows there.
    """
    filled = [
        name
        for table in tables
        for name in find_written_tables(client, table.database, table.name).table_ids
        if fetch(client, f"SELECT 1 FROM {full_name(*name)} LIMIT 1")
    ]
    if filled:
        remedy = "; ".join(f"TRUNCATE TABLE {full_name(*name)}" for name in filled)
        if config.sink.shared_table:
            remedy = "since other pipelines have rows there, too (sink.shared_table), name another table first"
        raise CheckpointError(
            f"{' and '.join('.'.join(name) for name in filled)} must be empty for --start-over, or all rows that are "
            f"read again are written twice: {remedy}"
        )
