"""Spark's Python workers: where they come from, and that they are there when the first batch wants them."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

DAEMON_MODULE = "glassflow_dagster.streaming.worker_daemon"


def start_workers(spark: SparkSession) -> None:
    """Let their daemon start beside what Spark does before its first batch; returns at once."""
    threading.Thread(target=_pass_a_row, args=(spark,), daemon=True).start()


def _pass_a_row(spark: SparkSession) -> None:
    # If Python does not work here, or the session is stopped meanwhile, then those say so who need it.
    with suppress(Exception):
        spark.range(0, 1, 1, 1).mapInArrow(_same, "id long").collect()


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
