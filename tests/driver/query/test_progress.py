"""The fields of a heartbeat that come from Spark's progress of a query."""

import json
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.driver.query.progress import query_progress
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stream.delivery.batch_writer import WriterProgress

END = {"bids": {"0": 40, "1": 7}, "lots": {"0": 3}, "p.glassflow-replay": {"0": 1}}
WRITTEN = WriterProgress(totals=Totals(read=2))
LATEST = {"bids": {"0": 45, "1": 7}, "lots": {"0": 5}, "p.glassflow-replay": {"0": 2}}


def operator(memory: int, **metrics: int) -> dict[str, Any]:
    """Return Spark 4's progress of a state store."""
    counts = dict.fromkeys(
        ("numRowsTotal", "numRowsUpdated", "numRowsRemoved", "allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs",
         "numRowsDroppedByWatermark", "numShufflePartitions", "numStateStoreInstances"), 0,
    )  # fmt: skip
    name = "transformWithStateExec"
    return {"operatorName": name, **counts, "memoryUsedBytes": memory, "customMetrics": metrics}


def heartbeat_fields(
    *operators: dict[str, Any],
    latest: Any = LATEST,
    written: WriterProgress = WRITTEN,
    state_bytes: int | None = None,
) -> dict[str, Any]:
    """Return the heartbeat fields of a query over two topics, whose last batch took a quarter of a second."""
    source = {
        "description": "kafka", "startOffset": None, "endOffset": json.dumps(END),
        "latestOffset": latest and json.dumps(latest), "numInputRows": 1, "inputRowsPerSecond": 2.0,
        "processedRowsPerSecond": 3.0, "metrics": {},
    }  # fmt: skip
    last = StreamingQueryProgress.fromJson({
        "id": "00000000-0000-0000-0000-000000000001", "runId": "00000000-0000-0000-0000-000000000002", "name": "p",
        "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 1, "batchDuration": 250, "durationMs": {}, "eventTime": {},
        "stateOperators": list(operators), "sources": [source],
        "sink": {"description": "s", "numOutputRows": -1, "metrics": {}}, "observedMetrics": {}, "numInputRows": 1,
        "inputRowsPerSecond": 2.0, "processedRowsPerSecond": 3.0,
    })  # fmt: skip
    query = SimpleNamespace(lastProgress=last)
    topics = ["bids", "lots"]
    return query_progress(cast("StreamingQuery", query), written, Totals(read=5), topics, state_bytes)


def test_what_waits_is_told_of_all_topics_and_of_each_source() -> None:
    found = heartbeat_fields()
    assert (found["lag"], found["lags"]) == (8, {"bids": 5, "lots": 2})
    assert found["totals"].read == 7


def test_what_waits_is_unknown_while_spark_does_not_say() -> None:
    found = heartbeat_fields(latest=None)
    assert found["lag"] is None
    assert "lags" not in found


def test_the_rates_are_those_of_the_last_batch_in_its_time_and_since_the_one_before() -> None:
    found = heartbeat_fields(written=WriterProgress(read=100, interval_ms=500))
    assert (found["input_rows_per_second"], found["processed_rows_per_second"]) == (200.0, 400.0)


def test_the_first_batch_has_no_rate_of_input() -> None:
    assert heartbeat_fields(written=WriterProgress(read=100))["input_rows_per_second"] == 0.0


def test_the_state_is_what_its_stores_have_in_memory_and_in_files() -> None:
    stores = (operator(100, rocksdbSstFileSize=7, rocksdbPutCount=9), operator(20, rocksdbSstFileSize=3))
    assert heartbeat_fields(*stores)["state_bytes"] == 130
    assert heartbeat_fields(*stores, state_bytes=7)["state_bytes"] == 7, "the size that Spark does not know"


def test_a_state_that_no_batch_has_opened_yet_has_no_size() -> None:
    assert "state_bytes" not in heartbeat_fields()
    assert "state_bytes" not in heartbeat_fields(operator(0))
