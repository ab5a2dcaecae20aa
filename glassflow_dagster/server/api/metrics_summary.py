"""The figures of one pipeline at a glance, from its driver's heartbeat."""

from typing import Any

from glassflow_dagster.control.heartbeat import Heartbeat
from glassflow_dagster.server.api.catalog import Catalog, iso

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def metrics_summary(catalog: Catalog, pipeline_id: str) -> dict[str, Any]:
    """Return rates, lag, latency and the number of records by outcome; raises `ApiError`.

    Of a pipeline that has never run here only its status is known. Rates are records per second, latencies seconds from
    a record's timestamp in Kafka to its row; both are of the driver that runs, or ran last.
    """
    catalog.stored(pipeline_id)
    beat = catalog.stream(pipeline_id).heartbeat
    known = {"pipeline_id": pipeline_id, "status": catalog.status(pipeline_id)}
    return {**known, **_figures(beat)} if beat else known


def _figures(beat: Heartbeat) -> dict[str, Any]:
    ages = beat.measures.event_to_row
    return {
        "updated_at": iso(beat.updated_at),
        "records": beat.totals.model_dump(),
        "records_in_per_second": beat.input_rows_per_second,
        "records_out_per_second": beat.processed_rows_per_second,
        "lag": beat.lag,
        "lag_by_topic": beat.lags,
        "latency_seconds": {name: ages.quantile(share) for name, share in _QUANTILES.items()},
        "batch": beat.batch_id,
        "batch_time": iso(beat.batch_time) if beat.batch_time is not None else None,
        "dead_letters_waiting": beat.dead_letters_waiting,
        "state_keys": beat.state_keys,
        "state_bytes": beat.state_bytes,
    }
