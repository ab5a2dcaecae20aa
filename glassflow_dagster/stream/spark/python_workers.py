"""Starts Spark's Python workers early, so that the first batch need not wait for them."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

DAEMON_MODULE = "glassflow_dagster.stream.worker_daemon"


def start_workers(spark: SparkSession) -> None:
    """Start the workers' daemon in the background, by a job of one row on a thread; return at once."""
    threading.Thread(target=_pass_a_row, args=(spark,), daemon=True).start()


def _pass_a_row(spark: SparkSession) -> None:
    """Run a job that passes one row through a Python worker, which starts the daemon."""
    # Errors are ignored: if Python does not work, or the session is stopped meanwhile, the first batch fails as well.
    with suppress(Exception):
        spark.range(0, 1, 1, 1).mapInArrow(_same, "id long").collect()


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
