"""The process that Spark's Python workers are forked from, with all that a worker needs in memory already.

Spark's own loads next to nothing, so that each worker spends seconds of CPU time on the same imports before its first
row. It does so because libraries may start threads as they are imported, which a fork does not copy. Those of pyarrow
are its allocator's, which knows how to be forked, and Spark keeps numpy to one by OMP_NUM_THREADS.
"""

import gc

import pandas as pd  # noqa: F401 - what Spark's worker imports when it gets its first task
import pyspark.worker  # noqa: F401 - what the daemon's children run
from pyspark.daemon import manager

import glassflow_dagster.streaming.delivery.partition_writer  # noqa: F401 - what their tasks run

if __name__ == "__main__":
    # A collection would write to all that the workers share.
    gc.freeze()
    manager()
