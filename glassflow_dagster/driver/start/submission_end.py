"""The end of a submission: a cluster starts its driver again and again, and does not know that nobody wants it."""

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import Fenced
from glassflow_dagster.stores.bookkeeping.drivers import newest_epochs
from glassflow_dagster.stores.bookkeeping.stop_requests import stop_requests


def require_current(client: Client, config: PipelineConfig, submission: str) -> None:
    """Raise `Fenced` where this driver is started again, though its stream was stopped, or another one runs it.

    submission: of this driver; empty where nothing but its launcher starts it. Raises what `fetch` raises.
    """
    if not submission:
        return
    database, pipeline_id = config.sink.connection_params.database, config.pipeline_id
    own, newest = newest_epochs(client, database, pipeline_id, submission)
    if own == 0:
        # Its first start, by which it was asked for.
        return
    if newest > own:
        raise Fenced(f"{pipeline_id}: another driver was started meanwhile (epoch {newest}; this one's was {own})")
    if stop_requests(client, database, pipeline_id).epoch >= own:
        raise Fenced(f"{pipeline_id}: was stopped")
