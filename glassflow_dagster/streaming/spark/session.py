"""The Spark session of a driver: which jars it carries, and the settings that the design rests on.

Every setting here has its reason; what is left out is Spark's default.
"""

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.java import find_java, java_environment
from glassflow_dagster.streaming.spark.cds_archive import driver_jars, reading_options
from glassflow_dagster.streaming.spark.py4j_logging import be_quiet_about_lost_jvm
from glassflow_dagster.streaming.spark.python_workers import DAEMON_MODULE
from glassflow_dagster.streaming.spark.spark_errors import explain_start

# Spark's own log, in the pipeline's folder.
SPARK_LOG = "spark.log"

# Working copies of state stores, shuffle files; nothing in it is needed by the next session.
SPARK_SCRATCH = "tmp"

DRIVER_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# Fixed with a checkpoint: as many partitions has its state.
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
WRITE_BUFFER = "spark.sql.streaming.stateStore.rocksdb.writeBufferSizeMB"

_BIND_ADDRESS = "spark.driver.bindAddress"

# Rows in an Arrow batch on their way to the Python workers. Blocks are cut anew there; this bounds memory only, as do
# the bytes at which scala/spark/ArrowBatches.scala ends a batch.
ARROW_ROWS = 1_000
# Spark's own bound in bytes has it measure all columns behind every row, which was half of all its work. This turns it
# off.
_NO_BOUND = 2**31 - 1

# Java's thorough compiler takes a method on after so many calls and rounds of loops (`java -XX:+PrintFlagsFinal`). In a
# start of Spark that is thousands of methods which then hardly run, and the compiler had as much CPU time as all else.
_THOROUGH_AFTER = {
    "Tier4InvocationThreshold": 5_000, "Tier4MinInvocationThreshold": 600, "Tier4CompileThreshold": 15_000,
    "Tier4BackEdgeThreshold": 40_000,
}  # fmt: skip
# What runs for every row is still there within a batch.
_LATER = 10

# Throughput, not pauses, is what a micro-batch is made of. A collector that may take a 25th of the time, in place of a
# 100th, does with half of the heap at some thousand events a second, and lets it grow when there are more. The code
# that Spark makes of a few expressions is a method beyond the 8,000 bytes up to which Java compiles by itself:
# interpreted, a row took twice as long. And the whole heap is collected when classes take more than 21 MB, and again
# at 35: a start takes 60.
JAVA_OPTIONS = " ".join((
    "-XX:+UseParallelGC -XX:GCTimeRatio=24 -XX:MetaspaceSize=128m -XX:-DontCompileHugeMethods",
    *(f"-XX:{name}={_LATER * count}" for name, count in _THOROUGH_AFTER.items()),
))  # fmt: skip

# Jobs and queries that Spark remembers, each with its plan, for a page that hardly anybody opens. It is 1,000 unless it
# is told otherwise: a quarter of an hour, in which the memory in use would go on growing.
_REMEMBERED = "20"

# Of the stores of one state, in MB.
_WRITE_BUFFERS = 128
# With less, a batch of many events would put it to disk several times.
_LEAST_WRITE_BUFFER = 16

SETTINGS: dict[str, str] = {
    # The functions and state processors of streaming/state.
    "spark.sql.extensions": "glassflow.Functions",
    # State beyond memory; transformWithState knows no other store.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch uploads what it changed, not a snapshot of all.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Counting all rows costs a look-up for each write.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Half of the overhead of a batch, against the manager for every file system; a checkpoint here is a local folder.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Hadoop's own starts a process for each file.
    "spark.hadoop.fs.file.impl": "glassflow.LocalFiles",
    # In processing time Spark always wants another batch (SPARK-50180): an idle query would spin, and one that is to
    # end when all is read would not.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How often an idle query looks for news. Spark's 10 ms would ask the brokers 100 times a second.
    "spark.sql.streaming.pollingDelay": "50ms",
    # JSON and ClickHouse tell id from ID.
    "spark.sql.caseSensitive": "true",
    # Batches, windows and ClickHouse's DateTime are one clock.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(_NO_BOUND),
    # The checkpoint fixes the number of state partitions; joining small ones would change which block a row is in.
    "spark.sql.adaptive.enabled": "false",
    # A task that runs twice at once would write its blocks twice at once.
    "spark.speculation": "false",
    "spark.executor.defaultJavaOptions": JAVA_OPTIONS,
    "spark.python.daemon.module": DAEMON_MODULE,
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": _REMEMBERED,
    "spark.ui.retainedStages": _REMEMBERED,
    "spark.sql.ui.retainedExecutions": _REMEMBERED,
    "spark.ui.showConsoleProgress": "false",
    _BIND_ADDRESS: "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def start_session(name: str, folder: Path, overrides: Mapping[str, str], report: Callable[[str], None]) -> SparkSession:
    """Start the one session of this process, local on all cores unless `overrides` say otherwise.

    Raises `GlassflowError` when Spark does not start with them.
    """
    be_quiet_about_lost_jvm()
    # Spark wants it as soon as its JVM is there: a second, which passes while the JVM starts.
    Thread(target=import_module, args=("pandas",), daemon=True).start()
    # Found once: to find it, each candidate is asked by starting it.
    runtime = find_java()
    os.environ.update(java_environment(runtime))
    # glibc gives threads heaps of their own, up to eight a core, and gives little of them back. RocksDB's buffers come
    # and go on many of Spark's threads, and would fill them all.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers run this project's code: they need the interpreter that has it, not the first on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Where Spark's web page listens, which is off unless `overrides` say otherwise: without this on every address.
    os.environ.setdefault("SPARK_LOCAL_IP", overrides.get(_BIND_ADDRESS, SETTINGS[_BIND_ADDRESS]))
    jars = driver_jars(report)
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    builder = SparkSession.builder.appName(name).master(overrides.get("spark.master", "local[*]"))
    own = {
        **SETTINGS,
        "spark.driver.defaultJavaOptions": f"{JAVA_OPTIONS} {reading_options(runtime, jars)}".strip(),
        "spark.jars": ",".join(str(jar) for jar in jars),
        # There, too, as the archive has only classes of the class path.
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in jars),
        "spark.local.dir": str(folder / SPARK_SCRATCH),
        "spark.sql.warehouse.dir": str(folder / SPARK_SCRATCH / "warehouse"),
    }
    # Quoted, as Spark's launcher cuts options at spaces, and a path may have some.
    logging = f'-Dlog4j2.configurationFile={log_settings} "-Dglassflow.log={folder / SPARK_LOG}"'
    options = f"{logging} {overrides.get(DRIVER_JAVA_OPTIONS, '')}".strip()
    for key, value in {**own, **overrides, DRIVER_JAVA_OPTIONS: options}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
        # Its own settings Spark reads when the first of them is asked for.
        session.conf.get(SHUFFLE_PARTITIONS)
    except (PySparkException, Py4JJavaError) as error:
        given = f" (it was given {', '.join(sorted(overrides))})" if overrides else ""
        raise GlassflowError(f"Spark did not start{given}: {explain_start(error)}") from error
    except (Py4JError, ConnectionError) as error:
        raise GlassflowError(
            f"Spark's JVM ended while it started ({type(error).__name__}): killed, or out of memory; start again"
        ) from error
    return session


def stop_session(spark: SparkSession) -> None:
    """Stop a session; one whose JVM is gone has stopped."""
    with warnings.catch_warnings(), suppress(Py4JError, ConnectionError):
        # It would say so, naming a line of pyspark's.
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()


def write_buffer_megabytes(partitions: int) -> int:
    """Give how large the part of a state store may be that is only in memory, where there are so many partitions.

    Each fourth time that RocksDB puts it to disk, it writes all that is there anew: it has to be large beside a
    partition's share of the keys. With two of 16 MB a quarter of the rate is gone at ten million keys, with two of 64
    MB nothing.
    """
    return max(_LEAST_WRITE_BUFFER, _WRITE_BUFFERS // partitions)


def java(spark: SparkSession) -> Any:
    """Give the door to a session's JVM: its packages and classes as attributes."""
    jvm = spark._jvm
    if jvm is None:
        raise RuntimeError("the Spark session has no JVM: it was stopped")
    return jvm
