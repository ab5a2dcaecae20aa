"""The Spark session of a driver: its jars, and the settings that the design rests on.

Each setting here has its reason beside it; all others are Spark's defaults.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.spark import DEFAULT_MEMORY, DRIVER_MEMORY
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.java import JavaRuntime, find_java, java_environment
from glassflow_dagster.runtime.spark_properties import submitted_settings
from glassflow_dagster.stream.spark.cds_archive import driver_jars, reading_options
from glassflow_dagster.stream.spark.py4j_logging import be_quiet_about_lost_jvm
from glassflow_dagster.stream.spark.python_workers import DAEMON_MODULE
from glassflow_dagster.stream.spark.spark_errors import explain_start
from glassflow_dagster.stream.spark.without_pandas import will_import_pandas

# Spark's own log, in the pipeline's folder.
SPARK_LOG = "spark.log"

# Working copies of state stores, and shuffle files; the next session needs none of them.
SPARK_SCRATCH = "tmp"

DRIVER_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# The number of partitions of the state, which is fixed when a checkpoint is created.
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
WRITE_BUFFER = "spark.sql.streaming.stateStore.rocksdb.writeBufferSizeMB"

# The class that reads and writes the files of a checkpoint.
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"

_CLASS_PATH = "spark.driver.extraClassPath"
_BIND_ADDRESS = "spark.driver.bindAddress"

# The most rows of an Arrow batch for the Python workers. The workers cut blocks from these batches, so this limits only
# memory, as does the limit in bytes of scala/spark/ArrowBatches.scala.
ARROW_ROWS = 1_000
# Turns off Spark's own limit in bytes, for which it measures all columns after every row: half of all its work.
_NO_BOUND = 2**31 - 1

# After this many calls and loop iterations Java's optimizing compiler (C2) compiles a method; these are the defaults
# (`java -XX:+PrintFlagsFinal`). At a start of Spark that is thousands of methods which hardly run afterwards: the
# compiler used as much CPU time as everything else.
_THOROUGH_AFTER = {
    "Tier4InvocationThreshold": 5_000, "Tier4MinInvocationThreshold": 600, "Tier4CompileThreshold": 15_000,
    "Tier4BackEdgeThreshold": 40_000,
}  # fmt: skip
# The factor by which they are raised; methods that run for every row still reach them within a batch.
_LATER = 10

# Micro-batches need throughput, not short pauses: so the parallel collector. If it may use a 25th of the time, not a
# 100th, half of the heap is enough at some thousand events a second; with more events the heap grows. The method that
# Spark generates from a few expressions exceeds the 8,000 bytes up to which Java compiles methods by default, and
# interpreted, a row took twice as long: so DontCompileHugeMethods is off. By default a full collection runs when class
# metadata exceeds 21 MB, and again at 35; a start needs 60: so MetaspaceSize is higher.
JAVA_OPTIONS = " ".join((
    "-XX:+UseParallelGC -XX:GCTimeRatio=24 -XX:MetaspaceSize=128m -XX:-DontCompileHugeMethods",
    *(f"-XX:{name}={_LATER * count}" for name, count in _THOROUGH_AFTER.items()),
))  # fmt: skip

# Jobs and queries that Spark keeps, each with its plan, for its web page. With the default of 1,000 the memory in use
# would grow for a quarter of an hour.
_REMEMBERED = "20"

# RocksDB's write buffers for all partitions of one state, in MB.
_WRITE_BUFFERS = 128
# With a smaller one, a batch of many events would flush it several times.
_LEAST_WRITE_BUFFER = 16

SETTINGS: dict[str, str] = {
    # The SQL functions and stateful processors of stream/scala.
    "spark.sql.extensions": "glassflow.Functions",
    # State larger than memory; transformWithState supports no other store.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes its changes to the checkpoint, not a snapshot of the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Only the last batch is ever repeated. By default the checkpoint keeps the files of a hundred versions of the
    # state, which after compactions are as large again as the state.
    "spark.sql.streaming.minBatchesToRetain": "20",
    # Counting rows would cost a lookup for each write.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # For a checkpoint in a local folder, where the default manager, for all file systems, doubles the overhead of a
    # batch. Another store replaces it (object_store.py).
    CHECKPOINT_FILES: ("org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"),
    # Hadoop's own local file system starts a process for each file that it creates.
    "spark.hadoop.fs.file.impl": "glassflow.LocalFiles",
    # In processing time Spark always starts another batch (SPARK-50180): an idle query would spin, and a query until
    # caught up would not end.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How often an idle query checks for new records. Spark's default of 10 ms is 100 requests a second to the brokers.
    "spark.sql.streaming.pollingDelay": "50ms",
    # Otherwise each function of a column first tells the JVM where it is called, for error messages: with ten calls of
    # the JVM instead of one, a third of the time to build a query.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # In JSON and ClickHouse, id and ID are different names.
    "spark.sql.caseSensitive": "true",
    # Times are in UTC everywhere: batches, windows, ClickHouse's DateTime.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(_NO_BOUND),
    # Coalescing small partitions would change which block a row is in when a batch is replayed.
    "spark.sql.adaptive.enabled": "false",
    # A speculative copy of a task would write the same blocks at the same time.
    "spark.speculation": "false",
    "spark.executor.defaultJavaOptions": JAVA_OPTIONS,
    "spark.python.daemon.module": DAEMON_MODULE,
    DRIVER_MEMORY: DEFAULT_MEMORY,
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": _REMEMBERED,
    "spark.ui.retainedStages": _REMEMBERED,
    "spark.sql.ui.retainedExecutions": _REMEMBERED,
    "spark.ui.showConsoleProgress": "false",
    _BIND_ADDRESS: "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@dataclass(frozen=True)
class SparkJvm:
    """Spark's JVM for the one session of this process, with Spark settings, `overrides` among them.

    folder: where the settings are written for the launch.
    """

    settings: Mapping[str, str]
    overrides: Mapping[str, str]
    folder: Path

    def launch(self, output: int | None = None) -> Self:
        """Launch the JVM, and wait until it answers. One that an earlier session of this process has left is used.

        output: a file descriptor for what the JVM and the Python workers print; None for this process's stdout and
        stderr. Raises `GlassflowError` when the JVM does not start with these settings.
        """
        if SparkContext._gateway is None:
            options = {} if output is None else {"stdout": output, "stderr": output}
            with _start_errors(self.overrides), submitted_settings(self.folder, self.settings):
                # pyspark itself would not let us choose the output.
                gateway = launch_gateway(None, options)  # type: ignore[no-untyped-call]
                # The constructor of the context would start it, too.
                SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
                gateway.jvm.org.apache.spark.sql.inline.WarmUp.start()
        return self

    def open_session(self) -> SparkSession:
        """Open the session; raise `GlassflowError` when Spark does not start with these settings."""
        builder = SparkSession.builder
        for key, value in self.settings.items():
            builder = builder.config(key, value)
        with _start_errors(self.overrides):
            session = builder.getOrCreate()
            # Spark validates its SQL settings when the first of them is read.
            session.conf.get(SHUFFLE_PARTITIONS)
        return session


def start_session(
    name: str, folder: Path, overrides: Mapping[str, str], report: Callable[[str], None], more_jars: Sequence[Path] = ()
) -> SparkSession:
    """Start the one session of this process; parameters as of `prepare_jvm`, and all errors of a start."""
    jvm = prepare_jvm(name, folder, overrides, report, more_jars)
    if will_import_pandas():
        # It takes a second, so do it while the JVM starts.
        Thread(target=import_module, args=("pandas",), daemon=True).start()
    return jvm.launch().open_session()


def prepare_jvm(
    name: str, folder: Path, overrides: Mapping[str, str], report: Callable[[str], None], more_jars: Sequence[Path] = ()
) -> SparkJvm:
    """Find Java and the jars, and set this process's environment, for a session that is local on all cores.

    name: the application's.
    folder: for Spark's log and working files.
    overrides: Spark settings that replace this project's, such as the master.
    report: receives progress.
    more_jars: beside those of every driver.
    Raises `GlassflowError` where there is no Java, or a jar cannot be got.
    """
    be_quiet_about_lost_jvm()
    # Looked up once: each candidate is started to read its version.
    runtime = find_java()
    os.environ.update(java_environment(runtime))
    # glibc has up to eight heaps (arenas) per core for threads, and returns little of their memory. RocksDB allocates
    # its buffers on many of Spark's threads, and would fill them all.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers run this project's code, so they need this interpreter, not the first one on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The address that Spark's web page listens on, if `overrides` turn it on: by default all addresses.
    if _BIND_ADDRESS in overrides:
        # The variable may be that of an earlier session, which another process has handed down.
        os.environ["SPARK_LOCAL_IP"] = overrides[_BIND_ADDRESS]
    os.environ.setdefault("SPARK_LOCAL_IP", SETTINGS[_BIND_ADDRESS])
    jars = [*driver_jars(report), *more_jars]
    return SparkJvm(_settings(name, folder, overrides, runtime, jars), overrides, folder)


def _settings(
    name: str, folder: Path, overrides: Mapping[str, str], runtime: JavaRuntime, jars: Sequence[Path]
) -> dict[str, str]:
    """Return all settings of a session; parameters as of `prepare_jvm`. jars: those besides Spark's own."""
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    # Quoted, as Spark's launcher splits options at spaces, which a path may contain.
    logging = f'-Dlog4j2.configurationFile={log_settings} "-Dglassflow.log={folder / SPARK_LOG}"'
    own_settings = {
        **SETTINGS,
        "spark.app.name": name,
        "spark.master": "local[*]",
        "spark.driver.defaultJavaOptions": f"{JAVA_OPTIONS} {reading_options(runtime, jars)}".strip(),
        "spark.local.dir": str(folder / SPARK_SCRATCH),
        "spark.sql.warehouse.dir": str(folder / SPARK_SCRATCH / "warehouse"),
    }
    settings = {**own_settings, **overrides}
    # This project's jars first: they replace a class of Spark's, and the class archive has classes of such paths only.
    more = (overrides[_CLASS_PATH],) if _CLASS_PATH in overrides else ()
    settings[_CLASS_PATH] = os.pathsep.join((*map(str, jars), *more))
    if not is_local(settings["spark.master"]):
        # For the executors. One in this JVM would copy the jars first.
        settings.setdefault("spark.jars", ",".join(str(jar) for jar in jars))
    settings[DRIVER_JAVA_OPTIONS] = f"{logging} {overrides.get(DRIVER_JAVA_OPTIONS, '')}".strip()
    return settings


def runs_locally(spark: SparkSession) -> bool:
    """Return True when a session's executors are threads of its driver's JVM."""
    return is_local(str(spark.conf.get("spark.master")))


def is_local(master: str) -> bool:
    """Return whether the executor of this master runs in the driver's JVM: local, local[2], local[*, 4]."""
    return master.partition("[")[0] == "local"


@contextmanager
def _start_errors(overrides: Mapping[str, str]) -> Iterator[None]:
    """Turn the errors of a start into a `GlassflowError` that names the settings."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        settings = f" (with {', '.join(sorted(overrides))})" if overrides else ""
        raise GlassflowError(f"Spark did not start{settings}: {explain_start(error)}") from error
    except (Py4JError, ConnectionError) as error:
        raise GlassflowError(
            f"Spark's JVM ended while it started ({type(error).__name__}): it was killed or ran out of memory; start "
            "the pipeline again"
        ) from error


# Of the managers that keep a file until it is closed (UploadedFiles.scala): this host's folder for large ones.
UPLOAD_FOLDER = "glassflow.upload.folder"


def use_store(spark: SparkSession, manager: str, settings: Mapping[str, str], folder: str) -> None:
    """Let a session keep its checkpoints in a store, by a manager of checkpoint files and Hadoop's settings.

    folder: the setting with this host's folder for files on their way there, which executors elsewhere do not have.
    """
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    is_here = runs_locally(spark)
    for key, value in settings.items():
        if is_here or key != folder:
            configuration.set(key, value)
    spark.conf.set(CHECKPOINT_FILES, manager)


def stop_session(spark: SparkSession) -> None:
    """Stop a session; do nothing if its JVM has ended."""
    with warnings.catch_warnings(), suppress(Py4JError, ConnectionError):
        # pyspark would warn that the JVM has ended.
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()


def write_buffer_megabytes(partitions: int) -> int:
    """Return the size in MB of RocksDB's write buffer in each of a state's partitions.

    With every fourth flush of the buffer RocksDB compacts, that is rewrites, the whole partition: the buffer has to be
    large compared with a partition's keys. With two buffers of 16 MB a quarter of the rate is lost at ten million keys,
    with two of 64 MB nothing.
    """
    return max(_LEAST_WRITE_BUFFER, _WRITE_BUFFERS // partitions)


def java(spark: SparkSession) -> Any:
    """Return py4j's view of a session's JVM: its packages and classes as attributes."""
    jvm = spark._jvm
    if jvm is None:
        raise RuntimeError("the Spark session has no JVM: it was stopped")
    return jvm


def protobuf_answers(spark: SparkSession) -> Callable[[str], str]:
    """Return the function that asks a session's JVM for Protobuf messages and their fields (ProtobufReader.scala)."""

    @cache
    def reader() -> Any:
        # Most pipelines never ask.
        return java(spark).glassflow.ProtobufReader()

    return lambda request: str(reader().answer(request))
