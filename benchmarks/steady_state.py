"""One consumer of a full topic, from an empty table to its last row: throughput, CPU time and memory in steady state.

The number of visible rows is read from ClickHouse twice a second. Throughput and CPU time are slopes of straight lines
through these samples, from a fifth of the rows (warmed up) to the last sample but one. Then the table is compared with
the sent events: `lost` counts keys without a row, `doubled` surplus rows. A consumer that is killed half way and
started again is only compared.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import Any, Protocol

from benchmarks.console import say
from benchmarks.events import COLUMNS
from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS, Task
from benchmarks.pipelines import dedup_definition, visible_rows, write_definition
from benchmarks.processes import LOG_TAIL, Memory, birth, cpu_seconds_by_name, folder_bytes, tree
from benchmarks.results import Figures
from benchmarks.stack import OWN_PROGRAM, Stack
from glassflow_dagster.local.demo.produce import PARTITIONS

POLL_SECONDS = 0.1
# Reading /proc of all processes takes milliseconds.
SAMPLE_SECONDS = 0.5
FEWEST_SAMPLES = 5
# Share of the rows after which the JVM has compiled its hot code and Python's processes have their partitions.
WARM = 0.2
KILLED_AT = 0.5
# No peer needs this long between two blocks or to rejoin its group after a crash; one that does has stopped.
STALLED_SECONDS = 240.0
# Until the first row, or half of the rows: a loaded machine starts a JVM slowly.
START_SECONDS = 300.0
# After a crash the same rows may be written again, in one or two blocks.
STABLE_SECONDS = 10.0
END_SECONDS = 30.0
# As many keys take about half a gigabyte of ClickHouse's memory.
_KEYS_A_QUERY = 5_000_000


class Consumer(Protocol):
    """A program that reads the topic and writes the table."""

    @property
    def name(self) -> str:
        """Return its name in the results."""

    def prepare(self, task: Task, stack: Stack) -> None:
        """Create what it needs before it starts."""

    def command(self, task: Task, stack: Stack) -> list[str]:
        """Return the command that starts it."""

    def variables(self, task: Task, stack: Stack) -> dict[str, str]:
        """Return its environment variables."""


@dataclass(frozen=True)
class ProductCase:
    """This project's pipeline, run as a user does; `conf` are Spark settings, `changes` keys of its definition.

    sink, source: more keys of the sink and of the source. program: what runs it, this checkout without another.
    """

    name: str
    conf: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    sink: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, str]] = field(default_factory=lambda: COLUMNS)
    program: tuple[str, ...] = OWN_PROGRAM

    def prepare(self, task: Task, stack: Stack) -> None:
        """Write the definition, which also says how to create the table."""
        sink = {"max_batch_size": BLOCK_ROWS, "max_delay_time": f"{BLOCK_SECONDS:g}s", **self.sink}
        definition = dedup_definition(task.table, task.topic, self.columns, **sink)
        definition["sources"][0] |= self.source
        write_definition(stack.folder, {**definition, **self.changes})

    def command(self, task: Task, stack: Stack) -> list[str]:
        """Return the command `glassflow-dagster run`."""
        conf = [argument for setting in self.conf for argument in ("--conf", setting)]
        return [*stack.run_command(stack.folder / f"{task.table}.yaml", self.program), *conf]

    def variables(self, _task: Task, stack: Stack) -> dict[str, str]:
        """Return the addresses of broker and ClickHouse."""
        return stack.environment


@dataclass(frozen=True)
class Expected:
    """Events in the topic, and the rows and keys that the table must have."""

    events: int
    rows: int
    keys: int


@dataclass(frozen=True)
class Sample:
    """Rows in the table at one moment, and the CPU time of each process tree until then."""

    at: float
    rows: int
    cpu: Mapping[str, float]


class Run:
    """One consumer on one topic, from an empty table to its last row."""

    def __init__(self, consumer: Consumer, stack: Stack, task: Task, expected: Expected) -> None:
        self._consumer, self._stack, self._task, self._expected = consumer, stack, task, expected
        self._client = stack.client()
        self._log = stack.folder / f"{task.table}.log"
        self._began = 0.0

    def measure(self) -> Figures:
        """Run the consumer to the last row and return its figures."""
        with self.running() as process:
            memory = Memory({"consumer": process.pid})
            memory.start()
            try:
                first = self._wait_for_rows(process, 1) - self._began
                samples = self._samples(process)
                if self._compare()["lost"]:
                    self._wait_until_stable(process)
            finally:
                peak = memory.stop()
        return {
            **rates(samples, self._expected),
            "peak_memory_mib": peak["consumer"],
            "seconds_to_first_row": first,
            "seconds_to_last_row": samples[-1].at - self._began,
            **self._compare(),
        }

    def grow(self, parts: Sequence[range]) -> Sequence[Figures]:
        """Run the consumer to the last row; return its figures for each range of row counts in `parts`.

        Raises SystemExit when a row is lost or doubled.
        """
        with self.running() as process:
            memory = Memory({"consumer": process.pid})
            memory.start()
            try:
                self._wait_for_rows(process, 1)
                samples = self._samples(process)
            finally:
                memory.stop()
        if any(wrong := self._compare().values()):
            raise SystemExit(f"{self._consumer.name} has doubled and lost: {', '.join(map(str, wrong))}")
        events_a_row = self._expected.events / self._expected.rows
        figures = []
        for part in parts:
            within = [sample for sample in samples if sample.rows in part]
            found = slopes(within, events_a_row)
            figures.append({**found, "peak_memory_mib": memory.peak(within[0].at, within[-1].at)["consumer"]})
        return figures

    def restart(self, send: Callable[[], int]) -> Figures:
        """Start the consumer again when it has read everything; return the time and memory to the next row.

        send: sends new events, and returns their number. Also returns the size of the pipeline's state.
        """
        rows = self._rows()
        size = folder_bytes(self._stack.state)
        more = send()
        with self._started() as process:
            memory = Memory({"consumer": process.pid})
            memory.start()
            try:
                first = self._wait_for_rows(process, rows + 1) - self._began
                self._wait_for_rows(process, rows + more)
            finally:
                peak = memory.stop()
        return {
            "state_bytes_a_key": size / rows,
            "seconds_to_next_row": first,
            "peak_memory_mib": peak["consumer"],
        }

    def start(self) -> Figures:
        """Run the consumer until its first row is visible; return time and CPU time until then."""
        with self.running() as process:
            first = self._wait_for_rows(process, 1) - self._began
            used = self._sample(process).cpu["consumer"]
        return {"seconds_to_first_row": first, "cpu_seconds_to_first_row": used}

    def kill(self) -> Figures:
        """Kill the consumer half way and start it again; return the counts of lost and doubled rows."""
        with self.running() as process:
            self._wait_for_rows(process, KILLED_AT * self._expected.rows)
            kill(process)
        with self._started() as process:
            self._wait_until_stable(process)
        return self._compare()

    def drop(self) -> None:
        """Remove the run's table and state."""
        self._client.command(f"DROP TABLE {self._task.table}")
        for folder in (self._task.state, self._stack.state):
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Prepare and start the consumer; stop it at the end of the block."""
        self._consumer.prepare(self._task, self._stack)
        self._task.state.mkdir()
        with self._started() as process:
            yield process

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start the consumer; stop it at the end of the block unless it has ended."""
        with self._log.open("a") as log:
            self._began = time.monotonic()
            process = subprocess.Popen(
                self._consumer.command(self._task, self._stack),
                env=self._consumer.variables(self._task, self._stack),
                stdout=log,
                stderr=log,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    end(process)

    def _wait_for_rows(self, process: subprocess.Popen[bytes], rows: float) -> float:
        """Wait until this many rows are visible; return the time."""
        deadline = time.monotonic() + START_SECONDS
        while self._rows() < rows:
            self._require(process)
            if time.monotonic() > deadline:
                raise SystemExit(f"{self._consumer.name} does not get on; the end of its log:\n{self._tail()}")
            time.sleep(POLL_SECONDS)
        return time.monotonic()

    def _samples(self, process: subprocess.Popen[bytes]) -> list[Sample]:
        """Sample twice a second until the last row is visible or no row has come for STALLED_SECONDS."""
        samples = [self._sample(process)]
        changed = samples[0].at
        while samples[-1].rows < self._expected.rows and samples[-1].at - changed < STALLED_SECONDS:
            self._require(process)
            time.sleep(SAMPLE_SECONDS)
            samples.append(self._sample(process))
            if samples[-1].rows != samples[-2].rows:
                changed = samples[-1].at
        # Without the time in which a stopped consumer wrote nothing.
        return [sample for sample in samples if sample.at <= changed]

    def _wait_until_stable(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until every key has a row and the row count is stable, or no row has come for STALLED_SECONDS."""
        rows, changed, quiet = self._rows(), time.monotonic(), 0.0
        while quiet < STALLED_SECONDS and (quiet < STABLE_SECONDS or self._compare()["lost"]):
            self._require(process)
            time.sleep(1)
            if (rows_now := self._rows()) != rows:
                rows, changed = rows_now, time.monotonic()
            quiet = time.monotonic() - changed

    def _sample(self, process: subprocess.Popen[bytes]) -> Sample:
        stack = self._stack
        roots = {"consumer": process.pid, "kafka": stack.kafka_pid, "clickhouse": stack.clickhouse_pid}
        return Sample(time.monotonic(), self._rows(), cpu_seconds_by_name(roots))

    def _rows(self) -> int:
        return visible_rows(self._client, self._task.table)

    @property
    def _all_rows(self) -> str:
        """What a query reads the consumer's rows from."""
        return self._task.table

    def _compare(self) -> dict[str, float]:
        expected = self._expected
        # In several queries, as each holds the keys that it counts in memory.
        shares = 1 + expected.keys // _KEYS_A_QUERY
        share_query = f"SELECT count(), uniqExact(id) FROM {self._all_rows} WHERE cityHash64(id) % {shares} = "
        counts = [self._client.query(f"{share_query}{share}").result_rows[0] for share in range(shares)]
        rows, keys = (sum(column) for column in zip(*counts, strict=True))
        return {"doubled": rows - keys - (expected.rows - expected.keys), "lost": expected.keys - keys}

    def _require(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            raise SystemExit(f"{self._consumer.name} has ended by itself; the end of its log:\n{self._tail()}")

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]


def rates(samples: Sequence[Sample], expected: Expected) -> Figures:
    """Return throughput and CPU time in steady state, as slopes of straight lines through the samples.

    Rows come in blocks, and the blocks of a micro-batch close together, so a difference between two moments could be
    off by a batch. The first fifth of the rows is left out, and the last sample, whose block was not full.
    """
    steady = [sample for sample in samples if WARM * expected.rows <= sample.rows < expected.rows]
    return slopes(steady, expected.events / expected.rows)


def slopes(samples: Sequence[Sample], events_a_row: float) -> Figures:
    """Return throughput and CPU time over these samples; events_a_row: events read for each row written."""
    # All samples within one batch may have the same number of rows.
    if len(samples) < FEWEST_SAMPLES or samples[0].rows == samples[-1].rows:
        raise SystemExit(f"only {len(samples)} samples in steady state, or no new row in them; send more events")
    times = [sample.at for sample in samples]
    events = linear_regression(times, [sample.rows for sample in samples]).slope * events_a_row
    cpu = {name: linear_regression(times, [sample.cpu[name] for sample in samples]).slope for name in samples[0].cpu}
    return {
        "events_per_second": events,
        "events_per_cpu_second": events / cpu["consumer"],
        "events_per_cpu_second_of_all": events / sum(cpu.values()),
        **{f"cpu_seconds_per_million_events_{name}": used / events * 1e6 for name, used in cpu.items()},
    }


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants at once, like a power failure."""
    for pid in tree(process.pid):
        _signal(pid, signal.SIGKILL)
    process.wait()


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill the descendants that it leaves behind."""
    born = {pid: birth(pid) for pid in tree(process.pid)}
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        say(f"process {process.pid} does not end, and is killed")
    for pid, at in born.items():
        # Not a later process with the same pid.
        if at is not None and birth(pid) == at:
            _signal(pid, signal.SIGKILL)
    process.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def part_name(keys: range) -> str:
    """Return the name of a part of a run (`Run.grow`) in the results."""
    return f"{keys.start / 1e6:g} to {keys.stop / 1e6:g} million keys"


def new_task(stack: Stack, topic: str, table: str) -> Task:
    """Return the task of a run, with a state folder of its own."""
    return Task(stack.brokers, topic, PARTITIONS, stack.clickhouse_port, table, stack.folder / f"{table}.state")
