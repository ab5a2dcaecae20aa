"""What the parts of a pipeline reach alone, on the same machine: the limits of the whole.

One topic of the events of the other benchmarks, and these cases:

- copy: the bytes of all records are copied in memory, by one core.
- read, librdkafka: confluent-kafka's consumer takes all records and does nothing with them.
- read, Spark: Spark's Kafka source reads all records on all cores, into a sink that drops them.
- read, decode and map: the same with the stages of a pipeline without deduplication, up to the bytes of an insert.
- insert: the rows in blocks, by the pipeline's own inserter, one block after the other.
- pipeline: all of it, as `glassflow-dagster run` does it, without deduplication and with.

Spark's cases run once unmeasured, so that Java has compiled their code; a pipeline's rate is that of its steady state.
CPU time is that of the case's own process tree, broker and ClickHouse apart.

    make bench-limits        or: python -m benchmarks.limits --events 500000 --runs 1
"""

import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED, distinct, event, fill_topic
from benchmarks.peers.baseline import TAKEN
from benchmarks.peers.task import BLOCK_ROWS
from benchmarks.pipelines import dedup_definition, write_definition
from benchmarks.processes import cpu_seconds
from benchmarks.results import Figures, Runs
from benchmarks.shapes import STATELESS
from benchmarks.stack import Stack, running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.local.demo.produce import PARTITIONS
from glassflow_dagster.stores.clickhouse.inserts.block import RowBinaryBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.table import Table, filled_columns
from glassflow_dagster.stores.clickhouse.tables.prepare import prepare_target
from glassflow_dagster.stores.kafka.topics import offsets
from glassflow_dagster.stream.query import build_query
from glassflow_dagster.stream.spark.session import start_session, stop_session
from glassflow_dagster.stream.stages.source import read_ranges

TOPIC = "limits"
EVENTS = 2_000_000
RETRY_SECONDS = 60.0
# Of no driver, so that no replayed dead letters are read.
CHECKPOINT = "00000000-0000-0000-0000-000000000000"


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("limits")
    parser.add_argument("--events", type=int, default=EVENTS)
    arguments = parser.parse_args()
    runs = Runs()
    with running_stack() as stack, tempfile.TemporaryDirectory() as folder:
        fill_topic(stack, TOPIC, arguments.events)
        parts = Parts(stack, Path(folder), arguments.events)
        cases: dict[str, Callable[[], Figures]] = {
            "copy": parts.copy,
            "read, librdkafka": parts.consume,
            "read, Spark": parts.read,
            "read, decode and map": parts.map,
            "insert": parts.insert,
        }
        for _ in range(arguments.runs):
            for case, run in cases.items():
                runs.measure(case, run)
        # Before the pipelines, which need all cores.
        parts.close()
        keys = distinct(arguments.events)
        for turn in range(arguments.runs):
            runs.measure("pipeline, stateless", lambda turn=turn: parts.pipeline(STATELESS, arguments.events, turn))
            runs.measure("pipeline, deduplicated", lambda turn=turn: parts.pipeline({}, keys, turn))
    parameters = {"events": arguments.events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
    runs.write(arguments.results, "limits", parameters)


class Parts:
    """The parts of a pipeline on one topic, each by itself."""

    def __init__(self, stack: Stack, folder: Path, events: int) -> None:
        os.environ.update(stack.environment)
        self._stack, self._events = stack, events
        self._client = stack.client()
        self._config = self._load()
        self._table = prepare_target(self._client, self._config, create=True)
        self._spark = start_session("limits", folder, {}, lambda _: None)
        for warm in (self._records(), self._mapped()):
            drop(warm)
        self._block = _block(self._config, self._table, self._mapped())

    def close(self) -> None:
        """Stop Spark."""
        stop_session(self._spark)

    def copy(self) -> Figures:
        """Copy the bytes of all records."""
        records = np.frombuffer(event(1) * self._events, np.uint8)
        # Memory that the process has already.
        copy = records.copy()
        return self._measured(lambda: np.copyto(copy, records))

    def consume(self) -> Figures:
        """Read the topic with librdkafka."""
        consumer = Consumer({
            "bootstrap.servers": self._stack.brokers, "group.id": "limits", "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        })  # fmt: skip

        def run() -> None:
            read = 0
            consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
            while read < self._events:
                read += len(consumer.consume(TAKEN, timeout=1.0))

        figures = self._measured(run)
        consumer.close()
        return figures

    def read(self) -> Figures:
        """Read the topic with Spark."""
        return self._measured(lambda: drop(self._records()))

    def map(self) -> Figures:
        """Read the topic with Spark; decode and map the records."""
        return self._measured(lambda: drop(self._mapped()))

    def insert(self) -> Figures:
        """Insert as many rows as there are events."""
        inserter = Inserter(self._client, RETRY_SECONDS, lambda _: None)
        server = cpu_seconds(self._stack.clickhouse_pid)
        began = time.time_ns()

        def run() -> None:
            for number in range(self._events // self._block.num_rows):
                inserter.insert(self._table.database, self._table.name, self._block, Token(f"{began}/{number}"))

        figures = self._measured(run)
        used = cpu_seconds(self._stack.clickhouse_pid) - server
        self._client.command(f"TRUNCATE TABLE {self._table.name}")
        return {**figures, "cpu_seconds_per_million_events_clickhouse": used / self._events * 1e6}

    def pipeline(self, changes: dict[str, list[str]], rows: int, turn: int) -> Figures:
        """Run a pipeline. changes: keys of the definition. rows: those that it must write."""
        task = new_task(self._stack, TOPIC, f"pipeline_{len(changes)}_{turn}")
        case = ProductCase("glassflow-dagster", changes=changes)
        run = Run(case, self._stack, task, Expected(self._events, rows, distinct(self._events)))
        figures = run.measure()
        run.drop()
        names = (
            "events_per_second",
            "cpu_seconds_per_million_events_consumer",
            "cpu_seconds_per_million_events_clickhouse",
        )
        found = {name: figures[name] for name in names}
        return {name.removesuffix("_consumer"): value for name, value in found.items()}

    def _load(self) -> PipelineConfig:
        definition = dedup_definition("limits", TOPIC)
        return load_pipeline(write_definition(self._stack.folder, {**definition, **STATELESS}))

    def _records(self) -> DataFrame:
        ranges = {TOPIC: {p: (o.low, o.high) for p, o in offsets(self._config.connection, TOPIC).items()}}
        records = read_ranges(self._spark, self._config.source, self._config.topics, ranges)
        return records.withColumn("batch_time", F.lit(datetime.now(UTC)))

    def _mapped(self) -> DataFrame:
        return build_query(self._records(), self._config, [self._table], CHECKPOINT)

    def _measured(self, run: Callable[[], object]) -> Figures:
        # Of this process, and of Spark's JVM.
        used, began = cpu_seconds(os.getpid()), time.monotonic()
        run()
        took, used = time.monotonic() - began, cpu_seconds(os.getpid()) - used
        return {
            "events_per_second": self._events / took,
            "cpu_seconds_per_million_events": used / self._events * 1e6,
        }


def drop(rows: DataFrame) -> None:
    """Compute all rows, and drop them."""
    rows.write.format("noop").mode("overwrite").save()


def _block(config: PipelineConfig, table: Table, mapped: DataFrame) -> RowBinaryBlock:
    """Return a block of rows as the pipeline inserts it."""
    rows = mapped.select("row").limit(BLOCK_ROWS).toArrow().column("row")
    columns = tuple((m.column_name, table.columns[m.column_name].text) for m in filled_columns(config, table))
    return RowBinaryBlock(columns, rows.cast(pa.binary()))


if __name__ == "__main__":
    main()
