"""The metrics of a pipeline from ClickHouse alone, for pipelines whose drivers run on other hosts."""

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.runtime.metrics.pipeline_metrics import OUTCOMES, PipelineMetrics
from glassflow_dagster.stores.bookkeeping.fencing import last_epoch
from glassflow_dagster.stores.bookkeeping.losses import read_losses
from glassflow_dagster.stores.bookkeeping.outcomes import residual
from glassflow_dagster.stores.bookkeeping.totals import read_sums
from glassflow_dagster.stores.dead_letters.store import DeadLetterStore


def read_from_ledger(config: PipelineConfig) -> PipelineMetrics:
    """Return a pipeline's metrics from the bookkeeping tables: outcomes, residual, dead letters, epoch.

    Raises `TableProblem` when the tables do not exist, and another `GlassflowError` when ClickHouse cannot be queried.
    """
    store = DeadLetterStore.open(config)
    scope: tuple[Client, str, str] = (store.client, store.database, store.pipeline_id)
    sums = read_sums(*scope)
    losses = read_losses(*scope, sums.checkpoint_id)
    return PipelineMetrics(
        pipeline=config.pipeline_id,
        outcomes={outcome: getattr(sums.outcomes, name) for outcome, name in OUTCOMES.items()},
        residual=residual(
            sums.outcomes, joins=config.join is not None, lost_waiting=sum(loss.waiting for loss in losses)
        ),
        epoch=last_epoch(*scope),
        dead_letters_waiting=store.count(store.waiting()),
    )
