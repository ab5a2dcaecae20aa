"""What "nothing lost, nothing twice" costs: the flights pipeline with it and without, in turns, on one topic.

Off are, in this benchmark's own driver and nowhere else: the plan that a batch writes to disk before its first insert,
the fixed order of rows within a partition, the token of each insert and the settings that pin a block, dead letters,
the counts of what became of each record and the ledger's row, and the question for the table's definition. What is left
reads, decodes, deduplicates and inserts in blocks of the same size. Both tables must hold the same rows; that is
checked. What the health checks in Dagster cost is not in it: they run beside a stream, on their schedule.

Measured are offsets a second, and CPU time an offset of driver, Spark and ClickHouse together, over the second half of
each run's batches; and both as ratios of the two runs of a pair, which follow each other: 0.9 means a tenth fewer rows
a second, 1.1 a tenth more CPU. What else the machine does slows both runs of a pair, and hardly counts as their CPU
time; `load` says how much there was.

    make bench-guarantee        or: python -m benchmarks.guarantee --years 3 --runs 5
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.classic.dataframe import DataFrame

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import SEED
from benchmarks.pipelines import write_definition
from benchmarks.processes import cpu_seconds
from benchmarks.results import Figures, Runs
from benchmarks.stack import Stack, running_stack
from benchmarks.throughput import flights_definition, require_one_table, send_flights
from glassflow_dagster.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.streaming.checkpoint.blocks import cut
from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.streaming.delivery import batch_writer as batches
from glassflow_dagster.streaming.delivery.batch_writer import BatchWriter
from glassflow_dagster.streaming.delivery.partition_writer import PartitionWriter
from glassflow_dagster.streaming.delivery.totals import Totals
from glassflow_dagster.streaming.stages.record_counter import BatchOutcomes

KINDS = ("guarded", "unguarded")


def main() -> None:
    """Run the benchmark and write its results, or make one run of it as its driver."""
    parser = results.parser("guarantee")
    parser.add_argument("--years", type=int, default=3)
    parser.add_argument("--drive", nargs=4, metavar=("KIND", "DEFINITION", "LOG", "SERVER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        kind, definition, log, server = options.drive
        _drive(kind, Path(definition), Path(log), int(server))
        return
    runs = Runs()
    with running_stack() as stack:
        sent = send_flights(stack, options.years)
        bench = Bench(stack)
        for pair in range(options.runs):
            # Turns change places, so that what slows the machine down over time slows both.
            for kind in KINDS[:: 1 if pair % 2 else -1]:
                runs.measure(kind, lambda kind=kind, pair=pair: bench.measure(kind, f"{kind}-{pair}"))
    runs.compare("what it costs", "guarded", "unguarded")
    runs.write(options.results, "guarantee", {"years": options.years, "events": sent, "seed": SEED})


class Bench:
    """The benchmark on one stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._client = stack, stack.client()
        self._tables: set[Any] = set()

    def measure(self, kind: str, name: str) -> Figures:
        """Run a pipeline in a process of its own and return its figures.

        Raises SystemExit when it fails, when its table differs from earlier ones, or when it has no ledger although
        `kind` is "guarded", or one although it is not.
        """
        file = write_definition(self._stack.folder, flights_definition(name))
        log = file.with_suffix(".log")
        arguments = ["--drive", kind, str(file), str(log), str(self._stack.clickhouse_pid)]
        completed = subprocess.run(
            [sys.executable, "-m", "benchmarks.guarantee", *arguments],
            env=self._stack.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode:
            raise SystemExit(completed.stderr)
        require_one_table(self._client, name, self._tables)
        ledger = "SELECT count() > 0 FROM analytics.glassflow_ledger WHERE pipeline_id = {name:String}"
        if self._client.query(ledger, {"name": name}).result_rows[0][0] != (kind == "guarded"):
            raise SystemExit(f"{name}: the ledger is not as it must be")
        return _second_half(log)


def _second_half(log: Path) -> Figures:
    """Measure from the end of the batch that passes half of the offsets to the end of the last one."""
    # For each batch: its offsets, when it ended, and the CPU seconds until then.
    ended_batches = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    total, read = sum(offsets for offsets, *_ in ended_batches), 0
    for index, (offsets, ended_at, cpu) in enumerate(ended_batches):
        read += offsets
        if read >= total / 2 and index + 1 < len(ended_batches):
            remaining = sum(later_offsets for later_offsets, *_ in ended_batches[index + 1 :])
            _, last_ended_at, last_cpu = ended_batches[-1]
            return {
                "rows_per_second": remaining / (last_ended_at - ended_at),
                "cpu_microseconds_a_row": (last_cpu - cpu) / remaining * 1e6,
            }
    raise SystemExit("too few batches; send more years")


def _drive(kind: str, definition: Path, log: Path, server: int) -> None:
    """Run the driver of one run, and log for each batch its offsets, when it ended, and the CPU time until then.

    kind: "unguarded" switches the guarantee off first. server: the process of ClickHouse, whose CPU time is included.
    """
    if kind == "unguarded":
        _switch_off()
    original_call = BatchWriter.__call__

    def call_and_log(writer: BatchWriter, batch: DataFrame, batch_id: int) -> None:
        original_call(writer, batch, batch_id)
        ranges_by_topic = writer.checkpoint.offset_ranges(batch_id).values()
        offsets = sum(until - start for partitions in ranges_by_topic for start, until in partitions.values())
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps([offsets, time.monotonic(), cpu_seconds(os.getpid(), server)]) + "\n")

    BatchWriter.__call__ = call_and_log
    options = RunOptions(state=definition.parent / "state", until_caught_up=True)
    run_pipeline(load_pipeline(definition), options, say)


def _switch_off() -> None:
    """Switch the guarantee off in this process, by patching; the product has no setting for this."""
    batches.PartitionWriter = BarePartitionWriter
    Checkpoint.plan = lambda _self, _batch_id: None
    Checkpoint.record = lambda _self, _plan: None
    BatchWriter._account = lambda *_, **__: Totals()
    DataFrame.sortWithinPartitions = lambda self, *_columns: self


@dataclass(frozen=True)
class BarePartitionWriter(PartitionWriter):
    """Inserts a partition's rows as they come: no token, no pinned block, no dead letters, no counts."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Insert all blocks of the partition without deduplication; yield empty outcomes."""
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
        yield BatchOutcomes().to_batch()


if __name__ == "__main__":
    main()
