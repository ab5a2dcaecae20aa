"""What exactly-once delivery costs: the flights pipeline with and without its guarantee, alternately, on one topic.

This benchmark's driver, and nothing else, can switch the guarantee off. Then a batch has no plan on disk before its
first insert, no fixed order of rows within a partition, no insert tokens and no settings that fix a block's contents,
no dead letters, no counts of what became of each record, no ledger row, and no query for the table's definition. What
is left reads, decodes, deduplicates and inserts in blocks of the same size. Both tables must hold the same rows, which
is checked. The health checks in Dagster are not included: they run beside a stream, on their schedule.

Measured are offsets a second, and CPU time per offset of driver, Spark and ClickHouse together, over the second half of
each run's batches; and both as ratios of the two runs of a pair, which follow each other: 0.9 means a tenth fewer rows
a second, 1.1 a tenth more CPU. Other load on the machine slows both runs of a pair and hardly counts as their CPU time;
`load` in the results says how high it was.

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
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.runtime.metrics.measures import Measures
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.stream.batch_query import BatchStages
from glassflow_dagster.stream.checkpoint.blocks import cut
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.delivery import batch_writer as batches
from glassflow_dagster.stream.delivery.batch_writer import BatchWriter
from glassflow_dagster.stream.delivery.partition_writer import PartitionWriter
from glassflow_dagster.stream.stages.record_counter import BatchOutcomes

KINDS = ("guarded", "unguarded")


def main() -> None:
    """Run the benchmark and write its results; with --drive, be the driver process of one run."""
    parser = results.parser("guarantee")
    parser.add_argument("--years", type=int, default=3)
    parser.add_argument("--drive", nargs=4, metavar=("KIND", "DEFINITION", "LOG", "SERVER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive:
        kind, definition, log, server = arguments.drive
        _drive(kind, Path(definition), Path(log), int(server))
        return
    runs = Runs()
    with running_stack() as stack:
        sent = send_flights(stack, arguments.years)
        bench = Bench(stack)
        for pair in range(arguments.runs):
            # The order alternates, so that a gradual slowdown of the machine affects both kinds.
            for kind in KINDS[:: 1 if pair % 2 else -1]:
                runs.measure(kind, lambda kind=kind, pair=pair: bench.measure(kind, f"{kind}-{pair}"))
    runs.compare("what it costs", "guarded", "unguarded")
    runs.write(arguments.results, "guarantee", {"years": arguments.years, "events": sent, "seed": SEED})


class Bench:
    """The runs of the benchmark on one stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._client = stack, stack.client()
        self._tables: set[Any] = set()

    def measure(self, kind: str, name: str) -> Figures:
        """Run one driver over the whole topic; return its figures. Its table must equal the tables of earlier runs."""
        file = write_definition(self._stack.folder, flights_definition(name))
        log = file.with_suffix(".log")
        drive = ["--drive", kind, str(file), str(log), str(self._stack.clickhouse_pid)]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.guarantee", *drive],
            env=self._stack.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        require_one_table(self._client, name, self._tables)
        ledger = "SELECT count() > 0 FROM analytics.glassflow_ledger WHERE pipeline_id = {name:String}"
        if self._client.query(ledger, {"name": name}).result_rows[0][0] != (kind == "guarded"):
            raise SystemExit(f"{name}: the ledger is not as it must be")
        return _second_half(log)


def _second_half(log: Path) -> Figures:
    """Return the figures from the end of the batch that passes half of the offsets to the end of the last batch."""
    ended = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    total, seen = sum(offsets for offsets, *_ in ended), 0
    for index, (offsets, at, cpu) in enumerate(ended):
        seen += offsets
        if seen >= total / 2 and index + 1 < len(ended):
            rest = sum(o for o, *_ in ended[index + 1 :])
            return {
                "rows_per_second": rest / (ended[-1][1] - at),
                "cpu_microseconds_a_row": (ended[-1][2] - cpu) / rest * 1e6,
            }
    raise SystemExit("too few batches; send more years")


def _drive(kind: str, definition: Path, log: Path, server: int) -> None:
    """Run the pipeline in this process; log each batch's offsets, end time and CPU time so far."""
    if kind == "unguarded":
        _switch_off()
    write = BatchWriter.write

    def logged(writer: BatchWriter, stages: BatchStages, batch_id: int) -> None:
        write(writer, stages, batch_id)
        read = writer.checkpoint.offset_ranges(batch_id).values()
        offsets = sum(until - first for partitions in read for first, until in partitions.values())
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps([offsets, time.monotonic(), cpu_seconds(os.getpid(), server)]) + "\n")

    BatchWriter.write = logged
    options = RunOptions(state=definition.parent / "state", until_caught_up=True)
    run_pipeline(load_pipeline(definition), options, say)


def _switch_off() -> None:
    """Disable the guarantee in this process by patching the product, which has no option for it."""
    batches.PartitionWriter = BarePartitionWriter
    Checkpoint.plan = lambda _self, _batch_id: None
    Checkpoint.record = lambda _self, _plan: None
    BatchWriter.write_ledger_row = lambda *_, **__: Totals()
    DataFrame.sortWithinPartitions = lambda self, *_columns: self


@dataclass(frozen=True)
class BarePartitionWriter(PartitionWriter):
    """Inserts a partition's rows as they come: no tokens, no fixed blocks, no dead letters, no counts."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all blocks of the partition; yield empty counts."""
        client, [table] = connect(self.connection), self.tables
        rows = (batch.filter(pc.is_valid(batch.column("row"))) for batch in batches)
        for block in map(table.block, cut(rows, self.limits)):
            names = ", ".join(map(quote_name, block.column_names))
            client.command(
                f"INSERT INTO {full_name(table.database, table.name)} ({names}) FORMAT {block.format}",
                data=block.body(),
                settings={"async_insert": 0, "insert_deduplicate": 0},
            )
        measures = pa.array([Measures().model_dump_json()])
        yield BatchOutcomes().to_batch().append_column("measures", measures)


if __name__ == "__main__":
    main()
