"""ClickHouse's own ways from Kafka into a table beside a pipeline, on the same topic, server and machine.

Its Kafka table engine reads a full topic into a table through a materialized view, without removing duplicates: into a
MergeTree, and into a ReplacingMergeTree, which removes them when it merges. Its sink for Kafka Connect does so from a
process of its own; the variable CONNECT_JARS names the folder of their jars (benchmarks/peers/README.md). The pipeline
removes duplicates before the insert. The time is from the statement that creates the view, or from the start of the
process, to the last row. CPU time is that of the server, and of the process. `surplus_rows` are rows beyond one for
each key at that moment, as a query without FINAL counts them.

    make bench-kafka-engine        or: python -m benchmarks.kafka_engine --events 1000000 --runs 1
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from clickhouse_connect.driver.client import Client

from benchmarks import results
from benchmarks.events import COLUMNS, DUPLICATES, SEED, distinct, fill_topic
from benchmarks.peers.environment import connect_classpath
from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS
from benchmarks.pipelines import (
    create_peer_table,
    dedup_definition,
    running_pipeline,
    visible_rows,
    wait_until,
    write_definition,
)
from benchmarks.processes import cpu_seconds
from benchmarks.results import Figures, Runs, turns
from benchmarks.stack import PASSWORD, USER, Stack, running_stack
from glassflow_dagster.local.demo.produce import PARTITIONS
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.java import find_java

TOPIC = "events"
EVENTS = 2_000_000
PIPELINE = "pipeline"
ENGINES = {"Kafka engine, MergeTree": "MergeTree", "Kafka engine, ReplacingMergeTree": "ReplacingMergeTree"}
CONNECT = "Kafka Connect, MergeTree"
PRODUCT = "glassflow-dagster"
CONNECT_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
# The bytes of a block's events.
FETCH_BYTES = BLOCK_ROWS * 200
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 300.0


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("kafka_engine")
    parser.add_argument("--events", type=int, default=EVENTS)
    arguments = parser.parse_args()
    runs = Runs()
    keys = distinct(arguments.events)
    with running_stack() as stack:
        fill_topic(stack, TOPIC, arguments.events)
        bench = Bench(stack, arguments.events, keys)
        for turn, case in turns([*ENGINES, CONNECT, PRODUCT], arguments.runs):
            if case == PRODUCT:
                runs.measure(case, lambda turn=turn: bench.run_pipeline(turn))
            elif case == CONNECT:
                runs.measure(case, lambda turn=turn: bench.run_connect(turn))
            else:
                runs.measure(case, lambda case=case, turn=turn: bench.run_engine(ENGINES[case], turn))
    parameters = {"events": arguments.events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
    runs.write(arguments.results, "kafka_engine", parameters)


class Bench:
    """One topic, and the ways from it into a table."""

    def __init__(self, stack: Stack, events: int, keys: int) -> None:
        self._stack, self._events, self._keys = stack, events, keys
        self._client: Client = stack.client()

    def run_engine(self, engine: str, turn: int) -> Figures:
        """Let the server read the topic into a table of this engine."""
        columns = ", ".join(f"{name} {column}" for name, (_, column) in COLUMNS.items())
        self._client.command(f"CREATE TABLE rows ({columns}) ENGINE = {engine} ORDER BY id")
        self._client.command(
            f"CREATE TABLE queue ({columns}) ENGINE = Kafka SETTINGS kafka_broker_list = '{self._stack.brokers}', "
            f"kafka_topic_list = '{TOPIC}', kafka_group_name = 'engine-{engine}-{turn}', kafka_format = 'JSONEachRow', "
            f"kafka_num_consumers = {PARTITIONS}, kafka_thread_per_consumer = 1, kafka_max_block_size = {BLOCK_ROWS}, "
            f"kafka_flush_interval_ms = {int(BLOCK_SECONDS * 1000)}"
        )
        began, used = time.monotonic(), self._server_seconds()
        self._client.command("CREATE MATERIALIZED VIEW consumer TO rows AS SELECT * FROM queue")
        # Counting keys costs the server more than looking at the offsets, whose rows come a little later.
        self._wait(lambda: self._consumed() >= self._events)
        self._wait(lambda: self._count("rows")[1] >= self._keys)
        figures = self._figures(time.monotonic() - began, self._server_seconds() - used, 0.0, "rows")
        for table in ("consumer", "queue", "rows"):
            self._client.command(f"DROP TABLE {table} SYNC")
        return figures

    def run_pipeline(self, turn: int) -> Figures:
        """Run the pipeline until all keys are in its table."""
        table = f"{PIPELINE}{turn}"
        sink = {"max_batch_size": BLOCK_ROWS, "max_delay_time": f"{BLOCK_SECONDS:g}s"}
        definition = write_definition(self._stack.folder, dedup_definition(table, TOPIC, COLUMNS, **sink))
        began, used = time.monotonic(), self._server_seconds()
        with running_pipeline(self._stack, definition) as driver:
            wait_until(
                lambda: visible_rows(self._client, table) >= self._keys, driver, PATIENCE_SECONDS, "all rows are there"
            )
            took, driver_seconds = time.monotonic() - began, cpu_seconds(driver.pid)
        figures = self._figures(took, self._server_seconds() - used, driver_seconds, table)
        self._client.command(f"DROP TABLE {table}")
        shutil.rmtree(self._stack.state)
        return figures

    def run_connect(self, turn: int) -> Figures:
        """Run Kafka Connect in standalone mode until all events are in the table."""
        create_peer_table(self._client, "rows")
        folder = self._stack.folder / f"connect{turn}"
        folder.mkdir()
        worker, connector = self._connect_settings(folder, turn)
        command = [str(find_java().executable), "-cp", connect_classpath(), CONNECT_MAIN, str(worker), str(connector)]
        began, used = time.monotonic(), self._server_seconds()
        with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                wait_until(
                    lambda: visible_rows(self._client, "rows") >= self._events,
                    process,
                    PATIENCE_SECONDS,
                    "all rows are there",
                )
                took, process_seconds = time.monotonic() - began, cpu_seconds(process.pid)
            finally:
                process.terminate()
        figures = self._figures(took, self._server_seconds() - used, process_seconds, "rows")
        self._client.command("DROP TABLE rows SYNC")
        return figures

    def _connect_settings(self, folder: Path, turn: int) -> tuple[Path, Path]:
        """Write the properties of the worker and of the sink; return their files."""
        worker = {
            "bootstrap.servers": self._stack.brokers,
            "listeners": f"http://127.0.0.1:{free_port()}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": folder / "offsets",
            "connector.client.config.override.policy": "All",
        }
        sink = {
            "name": f"sink{turn}",
            "connector.class": "com.clickhouse.kafka.connect.ClickHouseSinkConnector",
            "tasks.max": PARTITIONS,
            "topics": TOPIC,
            "topic2TableMap": f"{TOPIC}=rows",
            "hostname": "127.0.0.1",
            "port": self._stack.clickhouse_port,
            "database": "default",
            "username": USER,
            "password": PASSWORD,
            "ssl": "false",
            # The server's answers are then not compressed, which this client cannot read.
            "jdbcConnectionProperties": "?compress=0",
            # A poll is a block.
            "consumer.override.max.poll.records": BLOCK_ROWS,
            "consumer.override.max.partition.fetch.bytes": FETCH_BYTES,
            "consumer.override.fetch.max.bytes": FETCH_BYTES,
            "consumer.override.fetch.min.bytes": FETCH_BYTES // 2,
        }
        files = folder / "worker.properties", folder / "sink.properties"
        for file, settings in zip(files, (worker, sink), strict=True):
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        return files

    def _figures(self, took: float, server: float, driver: float, table: str) -> Figures:
        counted, keys = self._count(table)
        return {
            "seconds_to_last_row": took,
            "cpu_seconds_clickhouse": server,
            "cpu_seconds_driver": driver,
            "surplus_rows": counted - keys,
        }

    def _count(self, table: str) -> tuple[int, int]:
        """Return the rows and the keys of a table."""
        rows, keys = self._client.query(f"SELECT count(), uniqExact(id) FROM {table}").result_rows[0]
        return rows, keys

    def _server_seconds(self) -> float:
        return cpu_seconds(self._stack.clickhouse_pid)

    def _consumed(self) -> int:
        """Return how many messages the engine's consumers have read."""
        query = "SELECT sum(arraySum(assignments.current_offset)) FROM system.kafka_consumers WHERE table = 'queue'"
        return int(self._client.query(query).result_rows[0][0] or 0)

    @staticmethod
    def _wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"not done after {PATIENCE_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
