"""The daemon process that Spark's Python workers are forked from."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from glassflow_dagster.stream.spark.python_workers import DAEMON_MODULE

_WHO = """
import os, sys
from glassflow_dagster.stream import worker_daemon
for task in os.listdir("/proc/self/task"):
    print(open(f"/proc/self/task/{task}/comm").read().strip())
"""


def test_a_worker_has_the_sink_before_its_first_row(spark: SparkSession) -> None:
    def inspect_worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parent = open(f"/proc/{os.getppid()}/cmdline").read()  # noqa: PTH123, SIM115 - pickled with the function
        for batch in batches:
            loaded = "glassflow_dagster.stream.delivery.partition_writer" in sys.modules
            yield pa.RecordBatch.from_pydict({"loaded": [loaded] * len(batch), "parent": [parent] * len(batch)})

    found: list[Any] = spark.range(0, 1, 1, 1).mapInArrow(inspect_worker, "loaded boolean, parent string").collect()
    assert [row.loaded for row in found] == [True]
    assert DAEMON_MODULE in found[0].parent.split("\0")


def test_no_thread_is_lost_by_a_fork() -> None:
    """Imports before the fork start no threads except the allocator's, whose fork handlers restart them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", _WHO], capture_output=True, text=True, check=True, env=environment)
    main, *others = sorted(done.stdout.split(), key=lambda name: name != "python")
    assert main.startswith("python")
    assert set(others) <= {"jemalloc_bg_thd"}
