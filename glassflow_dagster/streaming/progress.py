"""How far a query is, as fields of a heartbeat: from its writer's counts and Spark's progress."""

import json
import math
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.streaming.batch import BatchWriter
from glassflow_dagster.streaming.checkpoint import BatchPlan
from glassflow_dagster.streaming.heartbeat import Totals


def progress(query: StreamingQuery, writer: BatchWriter, before: Totals) -> dict[str, Any]:
    """Tell how far a query is. `before`: the ledger's totals of all batches before those of this query."""
    found: dict[str, Any] = {"totals": before + writer.totals}
    found |= place(writer.last)
    if last := query.lastProgress:
        found |= {
            "input_rows_per_second": _rate(last.inputRowsPerSecond),
            "processed_rows_per_second": _rate(last.processedRowsPerSecond),
            "lag": _lag(last.sources[0]),
        }
    return found


def place(plan: BatchPlan | None) -> dict[str, Any]:
    """Tell where a batch ended."""
    if plan is None:
        return {}
    offsets = {t: {p: until for p, (_, until) in partitions.items()} for t, partitions in plan.offsets.items()}
    return {"batch_id": plan.batch_id, "batch_time": plan.batch_time_ms / 1000, "offsets": offsets}


def _rate(rows_per_second: float | None) -> float:
    """Spark gives no number, or none that is one, for a query's first moments."""
    return rows_per_second if rows_per_second and math.isfinite(rows_per_second) else 0.0


def _lag(source: Any) -> int | None:
    """Records that wait in Kafka; None while Spark does not know."""
    latest, end = (json.loads(text) if text else None for text in (source.latestOffset, source.endOffset))
    if not latest or not end:
        return None
    return sum(_behind(partitions, end.get(topic, {})) for topic, partitions in latest.items())


def _behind(latest: dict[str, int], end: dict[str, int]) -> int:
    return sum(until - end.get(partition, 0) for partition, until in latest.items())
