"""What "nothing lost, nothing twice" costs: the flights pipeline with it and without, in turns, on one topic.

Off are, in this benchmark's own driver and nowhere else: the plan that a batch writes to disk before its first insert,
the fixed order of rows within a partition, the token of each insert and the settings that pin a block, dead letters,
the counts of what became of each record and the ledger's row, and the question for the table's definition. What is left
reads, decodes, deduplicates and inserts in blocks of the same size. Both tables must hold the same rows; that is
checked. What the health checks in Dagster cost is not in it: they run beside a stream, on their schedule.

Prints one JSON object: offsets a second, and CPU time an offset of driver, Spark and ClickHouse together, over the
second half of each run's batches; and both costs by pairs of runs that follow each other, with median and spread. A
cost of 0.1 means a tenth fewer rows a second, or a tenth more CPU. What else the machine does slows both runs of a
pair, and hardly counts as their CPU time; `load` says how much there was.

    make bench-guarantee        or: python -m benchmarks.guarantee --years 3 --pairs 5
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pyspark.sql.classic.dataframe import DataFrame

from benchmarks.throughput import FIRST_YEAR, SEED, say, tree
from glassflow_dagster.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.demo.events import FLIGHTS_TOPIC, flight_event_count, flight_events
from glassflow_dagster.demo.produce import create_topic, send
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up
from glassflow_dagster.streaming import batch as batches
from glassflow_dagster.streaming.batch import BatchWriter
from glassflow_dagster.streaming.blocks import cut
from glassflow_dagster.streaming.checkpoint import Checkpoint
from glassflow_dagster.streaming.counts import Counts
from glassflow_dagster.streaming.driver import RunOptions, run_pipeline
from glassflow_dagster.streaming.sink import PartitionWriter

KINDS = ("guarded", "unguarded")


def main() -> None:
    """Run the benchmark and print its result, or one run of it as its driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--years", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--drive", nargs=4, metavar=("KIND", "DEFINITION", "LOG", "SERVER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        kind, definition, log, server = given.drive
        _drive(kind, Path(definition), Path(log), int(server))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "stack"
        stack = up(data, free_port(), free_port(), say)
        try:
            bench = Bench(Path(folder), stack.kafka.port, stack.clickhouse.port, stack.clickhouse.pid)
            print(json.dumps(bench.measure(given.years, given.pairs), indent=2))
        finally:
            down(data, say)


class Bench:
    """The benchmark on one stack."""

    def __init__(self, folder: Path, kafka_port: int, clickhouse_port: int, clickhouse_pid: int) -> None:
        self._folder, self._brokers, self._server = folder, f"127.0.0.1:{kafka_port}", clickhouse_pid
        self._client = clickhouse_connect.get_client(host="127.0.0.1", port=clickhouse_port)
        self._environment = {
            **os.environ,
            "GLASSFLOW_KAFKA_BROKERS": self._brokers,
            "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{clickhouse_port}",
        }

    def measure(self, years: int, pairs: int) -> dict[str, object]:
        """Give all figures."""
        create_topic(self._brokers, FLIGHTS_TOPIC)
        say(f"sending {flight_event_count(years):,} events ...")
        events = flight_events(tuple(range(FIRST_YEAR, FIRST_YEAR + years)))
        sent = send(self._brokers, FLIGHTS_TOPIC, events, SEED, lambda _: None)
        runs: dict[str, list[Rate]] = {kind: [] for kind in KINDS}
        loads: list[float] = []
        tables: set[Any] = set()
        for pair in range(pairs):
            # Turns change places, so that what slows the machine down over time slows both.
            for kind in KINDS[:: 1 if pair % 2 else -1]:
                runs[kind].append(self._run(kind, f"{kind}-{pair}", tables))
                loads.append(round(os.getloadavg()[0], 1))
                say(f"{kind}-{pair}: {runs[kind][-1]}, load {loads[-1]}")
        if len(tables) != 1:
            raise SystemExit(f"the tables differ: {tables}")
        couples = list(zip(runs["guarded"], runs["unguarded"], strict=True))
        return {
            "events": sent,
            "rows": next(iter(tables))[0],
            "rows_per_second": [round(run.rows_per_second) for run in runs["guarded"]],
            "rows_per_second_without_guarantee": [round(run.rows_per_second) for run in runs["unguarded"]],
            **_spread("cost", [1 - g.rows_per_second / u.rows_per_second for g, u in couples]),
            "cpu_microseconds": [round(run.cpu_microseconds, 1) for run in runs["guarded"]],
            "cpu_microseconds_without_guarantee": [round(run.cpu_microseconds, 1) for run in runs["unguarded"]],
            **_spread("cpu_cost", [g.cpu_microseconds / u.cpu_microseconds - 1 for g, u in couples]),
            "load": loads,
            "cores": os.cpu_count(),
        }

    def _run(self, kind: str, name: str, tables: set[Any]) -> "Rate":
        """Let one driver read all; gives its rate, and adds what its table holds."""
        definition: dict[str, Any] = yaml.safe_load(Path("pipelines/flights.yaml").read_text(encoding="utf-8"))
        definition["pipeline_id"] = definition["sink"]["table"] = name
        file, log = self._folder / f"{name}.yaml", self._folder / f"{name}.log"
        file.write_text(yaml.safe_dump(definition), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "benchmarks.guarantee",
            "--drive",
            kind,
            str(file),
            str(log),
            str(self._server),
        ]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        table = f"analytics.`{name}`"
        held = f"SELECT count(), sum(cityHash64(* EXCEPT ingested_at)) FROM {table}"
        tables.add(self._client.query(held).result_rows[0])
        self._client.command(f"DROP TABLE {table}")
        ledger = "SELECT count() > 0 FROM analytics.glassflow_ledger WHERE pipeline_id = {name:String}"
        if self._client.query(ledger, {"name": name}).result_rows[0][0] != (kind == "guarded"):
            raise SystemExit(f"{name}: the ledger is not as it must be")
        return _second_half(log)


@dataclass(frozen=True)
class Rate:
    """How fast a run was, in offsets, and what one of them cost."""

    rows_per_second: float
    cpu_microseconds: float

    def __str__(self) -> str:
        """Write it for people."""
        return f"{self.rows_per_second:,.0f} rows a second, {self.cpu_microseconds:.1f} us of CPU a row"


def _spread(name: str, costs: list[float]) -> dict[str, Any]:
    return {
        name: [round(cost, 3) for cost in costs],
        f"median_{name}": round(statistics.median(costs), 3),
        f"spread_of_{name}": [round(min(costs), 3), round(max(costs), 3)],
    }


def _second_half(log: Path) -> Rate:
    """Measure from the end of the batch that passes half of the offsets to the end of the last one."""
    ended = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    total, seen = sum(offsets for offsets, *_ in ended), 0
    for index, (offsets, at, cpu) in enumerate(ended):
        seen += offsets
        if seen >= total / 2 and index + 1 < len(ended):
            rest = sum(o for o, *_ in ended[index + 1 :])
            return Rate(rest / (ended[-1][1] - at), (ended[-1][2] - cpu) / rest * 1e6)
    raise SystemExit("too few batches; send more years")


def _cpu_seconds(*roots: int) -> float:
    """CPU time of processes and all below them, those included that have ended and were waited for."""
    ticks = 0
    for pid in (pid for root in roots for pid in tree(root)):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        # utime, stime, cutime and cstime, counted from the state, which follows the name.
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _drive(kind: str, definition: Path, log: Path, server: int) -> None:
    """Be the driver of one run, and log of each batch its offsets, when it was done, and the CPU time until then."""
    if kind == "unguarded":
        _switch_off()
    write = BatchWriter.__call__

    def logged(writer: BatchWriter, batch: DataFrame, batch_id: int) -> None:
        write(writer, batch, batch_id)
        read = writer.checkpoint.offset_ranges(batch_id).values()
        offsets = sum(until - first for partitions in read for first, until in partitions.values())
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps([offsets, time.monotonic(), _cpu_seconds(os.getpid(), server)]) + "\n")

    BatchWriter.__call__ = logged
    options = RunOptions(state=definition.parent / "state", until_caught_up=True)
    run_pipeline(load_pipeline(definition), options, say)


def _switch_off() -> None:
    """Take the guarantee out of this process. A driver of the product cannot: nothing in it asks for this."""
    batches.PartitionWriter = BarePartitionWriter
    Checkpoint.plan = lambda _self, _batch_id: None
    Checkpoint.record = lambda _self, _plan: None
    BatchWriter._read_definition = lambda _self: ""  # noqa: SLF001
    BatchWriter._account = lambda _self, _plan, _counts: None  # noqa: SLF001
    DataFrame.sortWithinPartitions = lambda self, *_columns: self


@dataclass(frozen=True)
class BarePartitionWriter(PartitionWriter):
    """Inserts a partition's rows as they come: no token, no pinned block, no dead letters, no counts."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all blocks of the partition, and report nothing of them."""
        rows = (batch.filter(pc.is_valid(batch.column("row"))) for batch in batches)
        for block in cut(rows, self.limits):
            columns = self._columns(block)
            names = ", ".join(map(quote_name, columns.column_names))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, columns.schema) as writer:
                writer.write_table(columns)
            self._client.command(
                f"INSERT INTO {full_name(self.database, self.table)} ({names}) FORMAT ArrowStream",
                data=sink.getvalue().to_pybytes(),
                settings={"async_insert": 0, "insert_deduplicate": 0},
            )
        yield Counts().to_batch()


if __name__ == "__main__":
    main()
