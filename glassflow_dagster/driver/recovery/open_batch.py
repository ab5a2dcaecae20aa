"""What both recoveries must know of a batch that may be open: who may still write it, and where its rows may be."""

from collections.abc import Iterable

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.fencing import begin_epoch
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint


def fence_off(
    client: Client, config: PipelineConfig, checkpoint: Checkpoint, checkpoint_id: str, tables: Iterable[Table]
) -> None:
    """Begin an epoch, so that no older driver of the pipeline, on any host, writes any more.

    checkpoint_id: of the checkpoint that is continued.
    tables: the sink's, as they were when the command began.
    """
    database, folder = config.sink.connection_params.database, str(checkpoint.folder.parent)
    rows = {table.full_name: table.rows for table in tables}
    begin_epoch(client, database, config.pipeline_id, checkpoint_id, folder, rows)


def why_in_other_tables(config: PipelineConfig, totals: LedgerTotals, begun_with: str) -> str:
    """Return why rows of an open batch may be in other tables than those that the routes choose; '' if they cannot.

    begun_with: the digest of the definition that the batch, or else the one before it, ran with.
    """
    has_routes = bool(config.sink.routes or totals.by_table.named_before)
    if not has_routes or begun_with in config.digests:
        return ""
    why = "the definition was edited since the last batch, so rows of an open batch may be in other tables"
    known = totals.by_table.named_before
    further = [sink.table_name for sink in config.sink.by_table if not sink.is_own and sink.table_name not in known]
    if further:
        # The definition of the last batch does not look there.
        why += f" ({' and '.join(further)}, to which no batch in the ledger has written: remove the batch's rows there)"
    return why
