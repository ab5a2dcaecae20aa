"""Whether a pipeline may begin at the beginning: with a checkpoint that is new, into a table that has none of its rows.

The ledger says whether it has written before; that a table looks empty says nothing, where rows go on to views, merge
or expire. Two first starts at once, on state folders of their own, are told apart by their rows in `glassflow_epochs`:
the later one goes on only if the earlier one is found to have written nothing.
"""

from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.fencing import Epoch, read_rival_starts
from glassflow_dagster.bookkeeping.totals import read_totals
from glassflow_dagster.clickhouse.identifiers import full_name
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.tables import Table, count_rows
from glassflow_dagster.clickhouse.target.views import find_written_tables
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.streaming.checkpoint.checkpoint import CheckpointError


def require_nothing_written(client: Client, config: PipelineConfig, table: Table) -> None:
    """Raise `CheckpointError` where the ledger has batches of the pipeline, which a new checkpoint would read again."""
    if read_totals(client, config.sink.connection_params.database, config.pipeline_id).batches:
        raise CheckpointError(
            f"{config.pipeline_id} has no checkpoint in this state folder, but it has written to "
            f"{table.database}.{table.name} before; name the state folder it ran with (--state DIR), let the "
            "checkpoint be rebuilt from the ledger, the topic and the table (glassflow-dagster run FILE "
            "--rebuild-state), or read the topics from their beginning into empty tables (glassflow-dagster run FILE "
            "--start-over)"
        )


def require_alone(client: Client, config: PipelineConfig, table: Table, epoch: Epoch) -> None:
    """Raise `CheckpointError` where another checkpoint of the pipeline was begun and may have written its first rows.

    epoch: of this start; no driver before it writes any more.
    """
    rivals = read_rival_starts(client, epoch)
    if not rivals:
        return
    first, wrote = rivals[0], any(rival.closed for rival in rivals)
    has_views = bool(find_written_tables(client, table.database, table.name).views)
    rows = count_rows(client, table.database, table.name)
    if not wrote and table.is_plain and not has_views and rows == first.rows:
        return
    raise CheckpointError(
        f"{config.pipeline_id} was started with another checkpoint, on host {first.host} with its state in "
        f"{first.folder} (since {first.since} UTC), and {table.database}.{table.name} may have rows of a batch that "
        "this one would read again. Name that state folder (--state DIR); where it is lost, empty the table and run "
        "with --start-over"
    )


def require_empty(client: Client, table: Table) -> None:
    """Raise `CheckpointError` with the statements to run, where the target or a table behind its views has rows."""
    filled = [
        place
        for place in find_written_tables(client, table.database, table.name).table_ids
        if fetch(client, f"SELECT 1 FROM {full_name(*place)} LIMIT 1")
    ]
    if filled:
        statements = "; ".join(f"TRUNCATE TABLE {full_name(*place)}" for place in filled)
        raise CheckpointError(
            f"{' and '.join('.'.join(place) for place in filled)} must be empty for --start-over, or all rows that are "
            f"read again are there twice: {statements}"
        )
