"""Computes the progress fields of a heartbeat from the batch writer's progress and Spark's."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.control.heartbeat import PartitionLag
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stream.checkpoint.checkpoint import BatchPlan
from glassflow_dagster.stream.delivery.batch_writer import WriterProgress


def query_progress(
    query: StreamingQuery, written: WriterProgress, before: Totals, topics: Sequence[str], state_bytes: int | None
) -> dict[str, Any]:
    """Return a query's progress as fields of a heartbeat.

    before: the ledger's totals of the earlier batches.
    topics: those of the sources.
    state_bytes: the size of the state; None to take Spark's.
    """
    progress: dict[str, Any] = {"totals": before + written.totals, "measures": written.measures}
    progress |= batch_position(written.last)
    if last := query.lastProgress:
        progress |= {
            "input_rows_per_second": _rate(written.read, written.interval_ms),
            "processed_rows_per_second": _rate(written.read, last.batchDuration),
            # Kafka is the first source; a join has a second one, the clock source.
            **_lag(last.sources[0], topics),
            **_state_size(_bytes_of(last.stateOperators) if state_bytes is None else state_bytes),
            "watermark": _watermark(last.eventTime),
        }
    return progress


def batch_position(plan: BatchPlan | None) -> dict[str, Any]:
    """Return a batch's id, time and end offsets as fields of a heartbeat; an empty dict for None."""
    if plan is None:
        return {}
    return {"batch_id": plan.batch_id, "batch_time": plan.batch_time_ms / 1000, "offsets": plan.next_offsets}


def _rate(records: int, milliseconds: int) -> float:
    """Return records a second; 0 where no time has passed, as before the second batch."""
    return records / milliseconds * 1000 if milliseconds > 0 else 0.0


def _lag(source: Any, topics: Sequence[str]) -> dict[str, Any]:
    """Return the unread records, in all (`lag`) and per source topic (`lags`); `lag` is None while Spark has none."""
    # Both are JSON: topic -> partition -> offset.
    latest, end = (json.loads(text) if text else None for text in (source.latestOffset, source.endOffset))
    if not latest or not end:
        return {"lag": None}
    behind = {topic: _behind(partitions, end.get(topic, {})) for topic, partitions in latest.items()}
    return _lag_fields(behind, topics)


def sampled_lag(partition_lags: Mapping[str, Mapping[int, PartitionLag]], topics: Sequence[str]) -> dict[str, Any]:
    """Return the fields lag and lags by what the brokers said; empty where they did not. topics: of the sources."""
    records = {topic: sum(lag.records for lag in lags.values()) for topic, lags in partition_lags.items()}
    return _lag_fields(records, topics) if records else {}


def _lag_fields(behind: Mapping[str, int], topics: Sequence[str]) -> dict[str, Any]:
    """Return the fields lag, of all topics, and lags, of the sources'. behind: unread records by topic."""
    return {"lag": sum(behind.values()), "lags": {topic: behind[topic] for topic in topics if topic in behind}}


def _behind(latest: dict[str, int], end: dict[str, int]) -> int:
    """Return a topic's unread records.

    latest: the log's end offsets by partition.
    end: those read so far.
    """
    return sum(until - end.get(partition, 0) for partition, until in latest.items())


def _watermark(event_times: Mapping[str, str]) -> float | None:
    """Return the watermark in seconds since 1970; None without an event clock, and before its first event."""
    text = event_times.get("watermark")
    # Spark begins with 1970.
    return (datetime.fromisoformat(text).timestamp() or None) if text else None


def _state_size(size: int) -> dict[str, Any]:
    """Return the size of the state stores in bytes as a field; an empty dict while no batch has opened a store."""
    return {"state_bytes": size} if size else {}


def _bytes_of(operators: Sequence[Any]) -> int:
    """Return the size of Spark's state stores in bytes: their memory, and their files on disk (RocksDB's SST files)."""
    return sum(o.memoryUsedBytes + o.customMetrics.get("rocksdbSstFileSize", 0) for o in operators)
