"""How far a query is, as fields of a heartbeat: from its writer's counts and Spark's progress."""

import json
import math
from collections.abc import Sequence
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.streaming.checkpoint.checkpoint import BatchPlan
from glassflow_dagster.streaming.delivery.batch_writer import WriterProgress
from glassflow_dagster.streaming.delivery.totals import Totals


def query_progress(
    query: StreamingQuery, written: WriterProgress, before: Totals, topics: Sequence[str]
) -> dict[str, Any]:
    """Return how far a query is. before: the ledger's totals of the earlier batches. topics: the sources'."""
    found: dict[str, Any] = {"totals": before + written.totals}
    found |= batch_position(written.last)
    if last := query.lastProgress:
        found |= {
            "input_rows_per_second": _rate(last.inputRowsPerSecond),
            "processed_rows_per_second": _rate(last.processedRowsPerSecond),
            **_lag(last.sources[0], topics),
            **_state_size(last.stateOperators),
        }
    return found


def batch_position(plan: BatchPlan | None) -> dict[str, Any]:
    """Return where a batch ended; nothing without one."""
    if plan is None:
        return {}
    offsets = {t: {p: until for p, (_, until) in partitions.items()} for t, partitions in plan.offsets.items()}
    return {"batch_id": plan.batch_id, "batch_time": plan.batch_time_ms / 1000, "offsets": offsets}


def _rate(rows_per_second: float | None) -> float:
    """Return Spark's rate; 0 for a query's first moments, of which Spark gives none, or one that is no number."""
    return rows_per_second if rows_per_second and math.isfinite(rows_per_second) else 0.0


def _lag(source: Any, topics: Sequence[str]) -> dict[str, Any]:
    """Return the records that wait in Kafka, in all and in each source's topic; None while Spark does not know."""
    latest, end = (json.loads(text) if text else None for text in (source.latestOffset, source.endOffset))
    if not latest or not end:
        return {"lag": None}
    behind = {topic: _behind(partitions, end.get(topic, {})) for topic, partitions in latest.items()}
    return {"lag": sum(behind.values()), "lags": {topic: behind[topic] for topic in topics if topic in behind}}


def _behind(latest: dict[str, int], end: dict[str, int]) -> int:
    return sum(until - end.get(partition, 0) for partition, until in latest.items())


def _state_size(operators: Sequence[Any]) -> dict[str, Any]:
    """Return what the state stores hold: their memory, with all that is not yet in files, and their files.

    Nothing while no batch has opened a store.
    """
    size = sum(o.memoryUsedBytes + o.customMetrics.get("rocksdbSstFileSize", 0) for o in operators)
    return {"state_bytes": size} if size else {}
