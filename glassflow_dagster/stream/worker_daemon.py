"""The daemon process that Spark's Python workers are forked from, with their libraries imported already.

Spark's own daemon imports next to nothing, so each worker spends seconds of CPU time on the same imports before its
first row. Spark avoids imports there because libraries may start threads, which a fork does not copy. Here that is
safe: pyarrow's threads are those of its allocator, which supports forks, and Spark limits numpy to one thread by
OMP_NUM_THREADS.
"""

import gc

import pandas as pd  # noqa: F401 - imported by Spark's worker with its first task
import pyspark.worker  # noqa: F401 - the program of the forked workers
from pyspark.daemon import manager

import glassflow_dagster.stream.delivery.partition_writer  # noqa: F401 - the function of their tasks

if __name__ == "__main__":
    # A garbage collection would write to memory pages that the workers share, and so copy them.
    gc.freeze()
    manager()
