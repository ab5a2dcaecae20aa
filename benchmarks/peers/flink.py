"""PyFlink: Flink SQL's deduplication by processing time, and a vectorised function that writes blocks.

Guarantee: at least once into ClickHouse; a checkpoint waits for the blocks before it, and after a crash what came
after it is written again. No sink for ClickHouse was found in the Maven repositories at hand, so blocks go through
Python.
State: RocksDB on disk, checkpointed every ten seconds, incrementally; a key is forgotten after 24 hours.
Package: apache-flink
Tuned: mini-batches of a second, Arrow batches of a block, parallelism of the topic's partitions.
"""

import os
import sys
from pathlib import Path

import pandas as pd
from pyflink.common import Configuration
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import FunctionContext, ScalarFunction, udf

from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS, FIELDS, Task

MILLISECONDS = 1000
CHECKPOINT = "10s"
TYPES = ("STRING", "STRING", "STRING", "STRING", "INT", "DOUBLE", "BIGINT")


class Write(ScalarFunction):
    """Writes an Arrow batch of rows as one insert."""

    def open(self, _context: FunctionContext) -> None:
        """Connect to ClickHouse."""
        self._task = Task.from_environment()
        self._client = self._task.client()

    def is_deterministic(self) -> bool:
        """Return False: the planner must neither remove nor repeat a call with side effects."""
        return False

    def eval(self, *columns: pd.Series) -> pd.Series:
        """Insert the rows; return a 1 for each."""
        values = [column.to_list() for column in columns]
        self._client.insert(self._task.table, values, column_names=FIELDS, column_oriented=True)
        return pd.Series([1] * len(columns[0]))


def settings(task: Task) -> dict[str, str]:
    """Return Flink's settings."""
    milliseconds = f"{int(BLOCK_SECONDS * MILLISECONDS)}"
    return {
        "parallelism.default": str(task.partitions),
        "pipeline.jars": f"file://{os.environ['BENCH_FLINK_JAR']}",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.arrow.batch.size": str(BLOCK_ROWS),
        "python.fn-execution.bundle.size": str(BLOCK_ROWS),
        "python.fn-execution.bundle.time": milliseconds,
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": f"{milliseconds} ms",
        "table.exec.mini-batch.size": str(BLOCK_ROWS),
        "table.exec.state.ttl": "24 h",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": CHECKPOINT,
        "execution.checkpointing.dir": f"file://{task.state}/checkpoints",
        **({"execution.state-recovery.path": str(found)} if (found := latest_checkpoint(task)) else {}),
    }


def latest_checkpoint(task: Task) -> Path | None:
    """Return the newest checkpoint, which a cluster's scheduler would restart from after a crash."""
    complete = [file.parent for file in task.state.glob("checkpoints/*/chk-*/_metadata")]
    return max(complete, key=lambda folder: folder.stat().st_mtime, default=None)


def main() -> None:
    """Run until killed."""
    task = Task.from_environment()
    configuration = Configuration()
    for name, value in settings(task).items():
        configuration.set_string(name, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    fields = ", ".join(f"`{name}` {kind}" for name, kind in zip(FIELDS, TYPES, strict=True))
    names = ", ".join(f"`{name}`" for name in FIELDS)
    tables.execute_sql(f"""
        CREATE TABLE events ({fields}, seen AS PROCTIME()) WITH (
            'connector' = 'kafka', 'topic' = '{task.topic}', 'properties.bootstrap.servers' = '{task.brokers}',
            'properties.group.id' = '{task.table}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json')
    """)
    tables.execute_sql("CREATE TABLE written (`ones` BIGINT) WITH ('connector' = 'blackhole')")
    tables.create_temporary_function("write_block", udf(Write(), result_type=DataTypes.BIGINT(), func_type="pandas"))
    tables.execute_sql(f"""
        INSERT INTO written SELECT write_block({names}) FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY seen ASC) AS place FROM events
        ) WHERE place = 1
    """).wait()


if __name__ == "__main__":
    main()
