"""A warm-up run of a driver without servers: a few records from files pass both kinds of query.

It exists for the classes that the JVM loads meanwhile; `spark.cds_archive` writes them to an archive.
"""

import json
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import parse_written_type
from glassflow_dagster.stores.clickhouse.table import Column, Table
from glassflow_dagster.stream.query import build_join_query, build_query
from glassflow_dagster.stream.spark.cds_archive import driver_jars, is_complete
from glassflow_dagster.stream.spark.session import DRIVER_JAVA_OPTIONS, SHUFFLE_PARTITIONS, java, start_session
from glassflow_dagster.stream.stages.clock_source_in_scala import ClockSource
from glassflow_dagster.stream.stages.record_counter import (
    BATCH_OUTCOMES_SCHEMA,
    BatchOutcomes,
    JoinCounter,
    SingleTopicCounter,
)
from glassflow_dagster.stream.stages.source import batch_time

_RECORD_SCHEMA = (
    "topic string, topic_rank int, partition int, offset bigint, timestamp bigint, key binary, value binary, "
    "headers array<struct<key string, value binary>>"
)
_TOPICS = ("left", "right")
_RECORDS_PER_TOPIC = 200
# The beginnings of the names of classes that a driver uses, of those in the jars besides Spark's own.
_LOADED = (
    "org/apache/kafka/clients/",
    "org/apache/kafka/common/",
    "org/apache/spark/sql/",
    "glassflow/",
    "org/apache/commons/pool2/",
)
# For the JVM to write the archive of its classes when it ends: some seconds, but it may be one of many busy processes.
_ARCHIVE_SECONDS = 900.0
# For the JVM to end then.
_EXIT_SECONDS = 10.0
_POLL_SECONDS = 0.1


def main(java_options: str, archive: Path) -> None:
    """Run both kinds of query on a JVM with these options, by which it writes `archive`; wait until it has ended."""
    with tempfile.TemporaryDirectory(prefix="warmup-") as name:
        folder = Path(name)
        settings = {DRIVER_JAVA_OPTIONS: java_options, SHUFFLE_PARTITIONS: "2"}
        spark = start_session("warmup", folder, settings, report=lambda _: None)
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        _load_classes(spark)
        records = _records(spark, folder / "records")
        _run(
            build_query(records, _config(joins=False), [_table()], checkpoint_id=_unique_name()),
            SingleTopicCounter().position_columns,
            folder / "single",
        )
        clock_source = ClockSource(spark, _unique_name())
        joined = build_join_query(
            records, clock_source.read(), _config(joins=True), [_table()], checkpoint_id=_unique_name()
        )
        _run(joined, JoinCounter().position_columns, folder / "joined")
        spark.stop()
        end_jvm(jvm, archive)


def end_jvm(
    jvm: "subprocess.Popen[bytes]",
    archive: Path,
    archive_seconds: float = _ARCHIVE_SECONDS,
    exit_seconds: float = _EXIT_SECONDS,
) -> None:
    """Close a JVM's standard input, upon which it writes the archive and ends; kill it if it does not.

    It has `archive_seconds` for the archive. Then it waits for RocksDB's threads, which may never end: it is killed
    after further `exit_seconds`.
    """
    assert jvm.stdin
    jvm.stdin.close()
    deadline = time.monotonic() + archive_seconds
    while jvm.poll() is None and not is_complete(archive) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    try:
        jvm.wait(exit_seconds)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _load_classes(spark: SparkSession) -> None:
    """Load classes of Kafka's clients, of Spark's source for it and of this project.

    A driver uses them, but not this run, whose records come from files.
    """
    loader = java(spark).java.lang.Thread.currentThread().getContextClassLoader()
    for jar in driver_jars(lambda _: None):
        with zipfile.ZipFile(jar) as content:
            names = [name for name in content.namelist() if name.startswith(_LOADED) and name.endswith(".class")]
        for name in names:
            # Some need libraries that are not there.
            with suppress(Py4JJavaError):
                loader.loadClass(name.removesuffix(".class").replace("/", "."))


def _records(spark: SparkSession, folder: Path) -> DataFrame:
    """Write records of two topics to files, and return them as a stream; columns: those of `read_records`."""
    now = round(datetime.now(UTC).timestamp() * 1000)
    # Columns as in `_RECORD_SCHEMA`. Each topic has two partitions, and each id comes twice: the second is a duplicate.
    rows: list[tuple[Any, ...]] = [
        (topic, rank, index % 2, index, now, b"", json.dumps({"id": str(index // 2), "n": index}).encode(), [])
        for rank, topic in enumerate(_TOPICS)
        for index in range(_RECORDS_PER_TOPIC)
    ]
    spark.createDataFrame(rows, _RECORD_SCHEMA).write.parquet(str(folder))
    stream = spark.readStream.schema(_RECORD_SCHEMA).parquet(str(folder))
    return stream.withColumn("batch_time", batch_time())


def _run(events: DataFrame, position_columns: tuple[str, ...], checkpoint: Path) -> None:
    """Run a query to its end. Its batches are sorted and passed to Python workers as in a driver, but not inserted."""

    def write(batch: DataFrame, _: int) -> None:
        batch.sortWithinPartitions(*position_columns).mapInArrow(_count, BATCH_OUTCOMES_SCHEMA).collect()

    stream = events.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    stream.outputMode("append").trigger(availableNow=True).start().awaitTermination()


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows of a partition, in place of writing them; columns out: those of `BatchOutcomes`."""
    outcomes = BatchOutcomes()
    outcomes.read = sum(batch.num_rows for batch in batches)
    yield outcomes.to_batch()


def _config(*, joins: bool) -> PipelineConfig:
    """Return a definition with deduplication, of one source or of two that are joined."""
    sources = _TOPICS if joins else ("left",)
    connection = {"brokers": ["127.0.0.1:9092"], "protocol": "PLAINTEXT", "mechanism": "NO_AUTH"}
    fields = [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]
    outputs = [{"source_id": "left", "name": "id"}, {"source_id": "right", "name": "n"}]
    join = {
        "enabled": True, "type": "left", "output_fields": outputs,
        **{f"{side}_source": {"source_id": side, "key": "id", "time_window": "1h"} for side in _TOPICS},
    }  # fmt: skip
    definition: dict[str, Any] = {
        "version": "v3", "pipeline_id": "warmup",
        "sources": [
            {"type": "kafka", "source_id": name, "topic": name, "connection_params": connection,
             "schema_fields": fields}
            for name in sources
        ],
        "transforms": [
            {"type": "dedup", "source_id": name, "config": {"key": "id", "time_window": "1h"}} for name in sources
        ],
        "sink": {
            "type": "clickhouse", "table": "warmup",
            "connection_params": {
                "host": "127.0.0.1", "port": "9000", "http_port": "8123", "database": "warmup",
                "username": "default", "password": "", "secure": False,
            },
            "max_batch_size": 1000, "max_delay_time": "1s",
            "mapping": [
                {"name": "id", "column_name": "id", "column_type": "String"},
                {"name": "n", "column_name": "n", "column_type": "Nullable(Int64)"},
            ],
        },
    }  # fmt: skip
    return PipelineConfig.model_validate(definition | ({"join": join} if joins else {}))


def _table() -> Table:
    """Return the target table of these definitions; it does not exist, since nothing is inserted."""
    types = {"id": "String", "n": "Nullable(Int64)"}
    columns = {name: Column(parse_written_type(kind), "", kind) for name, kind in types.items()}
    return Table(
        database="warmup",
        name="warmup",
        engine="MergeTree",
        engine_full="MergeTree",
        columns=columns,
        rows=0,
        ttl=False,
    )


def _unique_name() -> str:
    return str(uuid.uuid4())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
