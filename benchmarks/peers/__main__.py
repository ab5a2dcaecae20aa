"""Deduplication from Kafka into ClickHouse, beside peers: one topic, one broker, one ClickHouse, one machine.

Seeded events of 190 bytes, a tenth of which come a second time, lie in the topic when a peer starts with an empty
table and empty state. How many rows can be seen is asked of ClickHouse ten times a second. Rate and CPU time count
from the first block past a fifth of the rows, when all is warm, to the last row. Then the table is compared with what
was sent: `lost` keys have no row, `doubled` rows are too many. Peers take turns, so that what slows the machine down
over time slows all.

With `--kill` each run ends the peer's processes by SIGKILL when half of the rows are there, and starts it again: what
it then has lost or doubled is what its guarantee is worth.

    make bench-peers        or: python -m benchmarks.peers --events 500000 --runs 1 --only thin quix
"""

import ast
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from benchmarks import results
from benchmarks.peers.environment import Environment, flink_kafka_jar, python_of
from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS, Task
from benchmarks.results import Figures, Runs
from benchmarks.support import (
    COLUMNS,
    DUPLICATES,
    SEED,
    Memory,
    Stack,
    birth,
    cpu_seconds,
    dedup_definition,
    distinct,
    fill,
    numbers,
    running_stack,
    say,
    tree,
    write_definition,
)
from glassflow_dagster.demo.produce import PARTITIONS, create_topic
from glassflow_dagster.local.java import find_java, java_environment

TOPIC = "events"
POLL_SECONDS = 0.1
# Java has compiled what runs often, Python's processes have their partitions.
WARM = 0.2
KILLED_AT = 0.5
# No peer needs so long between two blocks, nor to rejoin its group after a crash; one that does has stopped.
STALLED_SECONDS = 240.0
# A loaded machine starts a JVM slowly.
START_SECONDS = 300.0
# After a crash the same rows may come again, in a block or two.
SETTLED_SECONDS = 10.0
END_SECONDS = 30.0
LOG_TAIL = 2000


@dataclass(frozen=True)
class Peer:
    """One of them: `module` is its file here, and `environment` the one it runs in."""

    name: str
    module: str
    environment: Environment = "requirements"

    def command(self, _task: Task, _stack: Stack) -> list[str]:
        """The command that starts it."""
        return [str(python_of(self.environment)), "-m", f"benchmarks.peers.{self.module}"]

    def variables(self, task: Task, _stack: Stack) -> dict[str, str]:
        """The environment that it is given."""
        variables = {**os.environ, **task.to_environment(), "PYTHONPATH": str(Path.cwd())}
        if self.environment == "requirements-flink":
            variables |= {**java_environment(find_java()), "BENCH_FLINK_JAR": str(flink_kafka_jar())}
        return variables

    def prepare(self, task: Task, stack: Stack) -> None:
        """Create its table."""
        columns = ", ".join(f"{name} {column}" for name, (_, column) in COLUMNS.items())
        stack.client().command(f"CREATE TABLE {task.table} ({columns}) ENGINE = MergeTree ORDER BY id")

    @cached_property
    def remarks(self) -> dict[str, str]:
        """What its docstring says of guarantee, state and tuning, and its version."""
        said = ast.get_docstring(ast.parse(Path(__file__).with_name(f"{self.module}.py").read_text(encoding="utf-8")))
        remarks = sections(said or "")
        package = remarks.pop("package")
        asked = f"from importlib.metadata import version; print(version({package!r}))"
        answer = subprocess.run(
            [str(python_of(self.environment)), "-c", asked], capture_output=True, text=True, check=True
        )
        return {"version": f"{package} {answer.stdout.strip()}", **remarks}


@dataclass(frozen=True)
class Own(Peer):
    """This project's pipeline, run as a user does."""

    def command(self, task: Task, stack: Stack) -> list[str]:
        """`glassflow-dagster run`."""
        return stack.run_command(stack.folder / f"{task.table}.yaml")

    def variables(self, _task: Task, stack: Stack) -> dict[str, str]:
        """Where broker and ClickHouse are."""
        return stack.environment

    def prepare(self, task: Task, stack: Stack) -> None:
        """Write its definition, by which it creates the table."""
        sink = {"max_batch_size": BLOCK_ROWS, "max_delay_time": f"{BLOCK_SECONDS:g}s"}
        write_definition(stack.folder, dedup_definition(task.table, task.topic, **sink))

    @cached_property
    def remarks(self) -> dict[str, str]:
        """The same of this project."""
        return {
            "guarantee": "exactly once into ClickHouse, also after a crash; the ledger accounts for every record",
            "state": "RocksDB, checkpointed with each batch; a key is forgotten after 24 hours",
        }


PEERS = {
    "glassflow-dagster": Own("glassflow-dagster", ""),
    "thin": Peer("thin consumer", "thin"),
    "bytewax": Peer("Bytewax", "bytewax_flow"),
    "pathway": Peer("Pathway", "pathway_flow"),
    "quix": Peer("Quix Streams", "quix"),
    "flink": Peer("PyFlink", "flink", "requirements-flink"),
}


def sections(docstring: str) -> dict[str, str]:
    """The parts of a docstring that begin with a name and a colon, by that name in lower case, each on one line."""
    found: dict[str, str] = {}
    name = ""
    for line in docstring.splitlines():
        start, colon, rest = line.partition(": ")
        if colon and start.isalpha():
            name = start.lower()
            found[name] = rest.strip()
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found


@dataclass(frozen=True)
class Sample:
    """What there is at one moment: `rows` in the table, and the CPU time of each until then."""

    at: float
    rows: int
    cpu: Mapping[str, float]


class Run:
    """One peer on one topic, from an empty table to its last row."""

    def __init__(self, peer: Peer, stack: Stack, task: Task, expected: int) -> None:
        self._peer, self._stack, self._task, self._expected = peer, stack, task, expected
        self._client = stack.client()
        self._log = stack.folder / f"{task.table}.log"
        self._began = 0.0

    def measure(self, events: int) -> Figures:
        """Let it run, and give its figures."""
        self._peer.prepare(self._task, self._stack)
        with self._log.open("w") as log:
            process = self._start(log)
            memory = Memory({"peer": process.pid})
            memory.start()
            try:
                first = self._reach(process, 1)
                warm = self._reach(process, WARM * self._expected)
                last = self._reach(process, self._expected)
                if self._compare()["lost"]:
                    self._settle(process)
            finally:
                peak = memory.stop()
                end(process)
        return {
            **_rates(warm, last, events / self._expected),
            "peak_memory_mib": peak["peer"],
            "seconds_to_first_row": first.at - self._began,
            **self._compare(),
        }

    def kill(self) -> Figures:
        """Kill it half way, start it again, and give what its table lacks or has too much."""
        self._peer.prepare(self._task, self._stack)
        with self._log.open("w") as log:
            process = self._start(log)
            try:
                self._reach(process, KILLED_AT * self._expected)
                kill(process)
                process = self._start(log)
                self._settle(process)
            finally:
                end(process)
        return self._compare()

    def drop(self) -> None:
        """Remove what the run has left."""
        self._client.command(f"DROP TABLE {self._task.table}")
        for folder in (self._task.state, self._stack.state):
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, log: IO[str]) -> subprocess.Popen[bytes]:
        self._task.state.mkdir(exist_ok=True)
        self._began = time.monotonic()
        return subprocess.Popen(
            self._peer.command(self._task, self._stack),
            env=self._peer.variables(self._task, self._stack),
            stdout=log,
            stderr=log,
        )

    def _reach(self, process: subprocess.Popen[bytes], rows: float) -> Sample:
        """Wait for so many rows, or for the last one of a peer that has stopped; gives that moment."""
        sample, changed = self._sample(process), time.monotonic()
        while sample.rows < rows:
            self._require(process)
            if time.monotonic() - changed > (STALLED_SECONDS if sample.rows else START_SECONDS):
                if sample.rows == 0:
                    raise SystemExit(f"{self._peer.name} writes nothing; the end of its log:\n{self._tail()}")
                say(f"{self._peer.name}: no row since {STALLED_SECONDS:g} s")
                return sample
            time.sleep(POLL_SECONDS)
            if (rows_now := self._rows()) != sample.rows:
                sample, changed = self._sample(process, rows_now), time.monotonic()
        return sample

    def _settle(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until every key is there and nothing more comes, or no row has come for long."""
        rows, changed, quiet = self._rows(), time.monotonic(), 0.0
        while quiet < STALLED_SECONDS and (quiet < SETTLED_SECONDS or self._compare()["lost"]):
            self._require(process)
            time.sleep(1)
            if (rows_now := self._rows()) != rows:
                rows, changed = rows_now, time.monotonic()
            quiet = time.monotonic() - changed

    def _sample(self, process: subprocess.Popen[bytes], rows: int | None = None) -> Sample:
        roots = {
            "peer": process.pid,
            "kafka": self._stack.kafka_pid,
            "clickhouse": self._stack.clickhouse_pid,
        }
        counted = self._rows() if rows is None else rows
        return Sample(time.monotonic(), counted, {name: cpu_seconds(pid) for name, pid in roots.items()})

    def _rows(self) -> int:
        """How many rows can be seen; asked of the parts, which is cheap, and right before there is a table."""
        asked = "SELECT sum(rows) FROM system.parts WHERE active AND table = {table:String}"
        return int(self._client.query(asked, parameters={"table": self._task.table}).result_rows[0][0])

    def _compare(self) -> dict[str, float]:
        asked = f"SELECT count(), uniqExact(id) FROM {self._task.table}"
        rows, keys = self._client.query(asked).result_rows[0]
        return {"lost": self._expected - keys, "doubled": rows - keys}

    def _require(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            raise SystemExit(f"{self._peer.name} has ended by itself; the end of its log:\n{self._tail()}")

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]


def _rates(warm: Sample, last: Sample, events_a_row: float) -> dict[str, float]:
    if last.rows == warm.rows:
        raise SystemExit("all rows came at once; send more events")
    events = (last.rows - warm.rows) * events_a_row
    cpu = {name: last.cpu[name] - warm.cpu[name] for name in last.cpu}
    return {
        "events_per_second": events / (last.at - warm.at),
        "events_per_cpu_second": events / cpu["peer"],
        "events_per_cpu_second_of_all": events / sum(cpu.values()),
        **{f"cpu_seconds_per_million_events_{name}": seconds / events * 1e6 for name, seconds in cpu.items()},
    }


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all below it at once, as a power cut would."""
    for pid in tree(process.pid):
        _signal(pid, signal.SIGKILL)
    process.wait()


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end; those below it that it leaves behind are killed."""
    born = {pid: birth(pid) for pid in tree(process.pid)}
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        say(f"process {process.pid} does not end, and is killed")
    for pid, at in born.items():
        # Not one that has its number by now.
        if at is not None and birth(pid) == at:
            _signal(pid, signal.SIGKILL)
    process.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("peers")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS), help="these alone")
    parser.add_argument("--kill", action="store_true", help="kill each half way; count what is lost or doubled")
    given = parser.parse_args()
    chosen = [PEERS[name] for name in given.only]
    runs = Runs()
    for peer in chosen:
        # Makes the environments, which must not count as a peer's start.
        runs.remark(peer.name, **peer.remarks)
    with running_stack() as stack:
        create_topic(stack.brokers, TOPIC)
        say(f"sending {given.events:,} events ...")
        fill(stack.brokers, TOPIC, numbers(given.events))
        expected = distinct(given.events)
        for turn in range(given.runs):
            for peer in chosen[:: 1 if turn % 2 == 0 else -1]:
                table = f"{peer.module or 'own'}_{turn}"
                port = stack.clickhouse_port
                task = Task(stack.brokers, TOPIC, PARTITIONS, port, table, stack.folder / f"{table}.state")
                run = Run(peer, stack, task, expected)
                runs.measure(peer.name, run.kill if given.kill else lambda run=run: run.measure(given.events))
                run.drop()
    parameters = {"events": given.events, "keys": expected, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(given.results, "peers_killed" if given.kill else "peers", {**parameters, "partitions": PARTITIONS})


if __name__ == "__main__":
    main()
