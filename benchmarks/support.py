"""What the benchmarks share: the embedded stack, events and topics, and what processes take of the machine."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import yaml
from clickhouse_connect.driver.client import Client
from confluent_kafka import Producer

from glassflow_dagster.demo.produce import create_topic
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up

SEED = 7
DUPLICATES = 0.1
# A broker on the same machine takes 76,000 events a second, and the producer holds half a million.
_FLUSH_SECONDS = 60.0
# What events of which nobody asks have as the time of their sending: 2026, in microseconds.
_NEW_YEAR = 1_767_225_600_000_000
_SAMPLE_SECONDS = 1.0

# A run that makes a state so much larger, as a share of it, is no run with so many keys: the next one fills another.
_MOST_GROWTH = 0.05

# The events of `events`, as ClickHouse and as a definition's `schema_fields` have them.
COLUMNS = {
    "id": ("string", "String"),
    "user": ("string", "String"),
    "name": ("string", "String"),
    "email": ("string", "String"),
    "amount": ("int", "Int32"),
    "price": ("float", "Float64"),
    "sent_at": ("int", "Int64"),
}


@dataclass(frozen=True)
class Stack:
    """A running Kafka broker and ClickHouse with their data below `folder`, and which processes they are."""

    folder: Path
    brokers: str
    clickhouse_port: int
    kafka_pid: int
    clickhouse_pid: int

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a pipeline, which makes any definition run on this stack."""
        return {
            **os.environ,
            "GLASSFLOW_KAFKA_BROKERS": self.brokers,
            "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{self.clickhouse_port}",
        }

    @property
    def state(self) -> Path:
        """Where its pipelines keep their state."""
        return self.folder / "state"

    def client(self) -> Client:
        """Connect to its ClickHouse."""
        return clickhouse_connect.get_client(host="127.0.0.1", port=self.clickhouse_port)

    def run_command(self, definition: Path) -> list[str]:
        """The command that runs a pipeline here."""
        return [sys.executable, "-m", "glassflow_dagster", "run", str(definition), "--state", str(self.state)]


@contextmanager
def running_stack() -> Iterator[Stack]:
    """Start broker and ClickHouse in a new folder; both end, and the folder goes, with the block.

    So they do when the benchmark is asked to end by SIGTERM.
    """
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="glassflow-bench-") as folder:
        data = Path(folder) / "stack"
        found = up(data, free_port(), free_port(), say)
        kafka, clickhouse = found.kafka, found.clickhouse
        if not (kafka.port and kafka.pid and clickhouse.port and clickhouse.pid):
            raise SystemExit("the stack is down as soon as it is up; look at its logs")
        try:
            yield Stack(Path(folder), f"127.0.0.1:{kafka.port}", clickhouse.port, kafka.pid, clickhouse.pid)
        finally:
            down(data, say)


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit("ended by SIGTERM")


def key(number: int) -> str:
    """The id of the event with this number: 32 digits that nothing can compress, as a UUID's."""
    return hashlib.blake2b(number.to_bytes(8), digest_size=16).hexdigest()


def can_stay(keys: int, events: float) -> bool:
    """Whether a state of so many keys is still about as large when a run has sent so many events."""
    return events * (1 - DUPLICATES) <= _MOST_GROWTH * keys


def event(number: int, sent_at: int = _NEW_YEAR, **more: str) -> bytes:
    """The event with this number, 190 bytes of JSON and more fields. sent_at: microseconds."""
    return json.dumps({
        "id": key(number), "user": f"user-{number % 10_000:05}", "name": f"User {number:08}",
        "email": f"customer.{number:08}@example.test", "amount": number % 15, "price": number % 10_000 / 100,
        "sent_at": sent_at, **more,
    }).encode()  # fmt: skip


def numbers(count: int, *, first: int = 0, seed: int = SEED) -> Iterator[int]:
    """Numbers of so many events, counted from `first`; DUPLICATES of them repeat one drawn from all before it."""
    draw, following = random.Random(seed), first
    for _ in range(count):
        if following > 0 and draw.random() < DUPLICATES:
            yield draw.randrange(following)
        else:
            yield following
            following += 1


def distinct(count: int, *, first: int = 0, seed: int = SEED) -> int:
    """How many of the events that `numbers` gives are new."""
    return max(numbers(count, first=first, seed=seed), default=first - 1) + 1 - first


class Sender:
    """Sends events to a topic, each under its id as Kafka's key, so that both sendings lie in one partition.

    Consumers that keep their state by partition find duplicates only there; for others it makes no difference.
    """

    def __init__(self, brokers: str, topic: str, linger_ms: int = 20) -> None:
        self._topic = topic
        # Not a method: producer and sender would hold each other, and the producer's threads live on.
        failed: list[str] = []
        self._failed = failed

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failed.append(str(error))

        self._producer = Producer(
            {
                "bootstrap.servers": brokers,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 500_000,
                # By the key alone, so that every run has the same partitions.
                "partitioner": "consistent",
                "on_delivery": delivered,
            }
        )

    def send(self, key: bytes, value: bytes) -> None:
        """Hand an event over; it waits while the producer's queue is full."""
        while True:
            try:
                self._producer.produce(self._topic, value, key)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until the broker has all of them."""
        if self._producer.flush(_FLUSH_SECONDS) or self._failed:
            raise SystemExit(f"not all events reached the topic: {self._failed[0] if self._failed else 'no answer'}")


def fill(brokers: str, topic: str, chosen: Iterable[int], make: Callable[[int], bytes] = event) -> int:
    """Send the events with these numbers, as `make` makes them; gives how many they are."""
    sender, count = Sender(brokers, topic), 0
    for number in chosen:
        sender.send(key(number).encode(), make(number))
        count += 1
    sender.finish()
    return count


def fill_topic(stack: Stack, topic: str, count: int, make: Callable[[int], bytes] = event) -> None:
    """Create a topic that holds so many of the events of `numbers`, as `make` makes them."""
    create_topic(stack.brokers, topic)
    say(f"{topic}: sending {count:,} events ...")
    fill(stack.brokers, topic, numbers(count), make)


def dedup_definition(
    pipeline: str, topic: str, columns: Mapping[str, tuple[str, str]] = COLUMNS, **sink: Any
) -> dict[str, Any]:
    """A pipeline that deduplicates such a topic by `id` into a table of its own name.

    columns: field -> its type, and its column's. sink: more of the sink's fields. Where broker and ClickHouse are comes
    from the environment.
    """
    return {
        "version": "v3",
        "pipeline_id": pipeline,
        "sources": [
            {
                "type": "kafka",
                "source_id": "events",
                "connection_params": {"brokers": ["127.0.0.1:9092"]},
                "topic": topic,
                "schema_fields": [{"name": name, "type": kind} for name, (kind, _) in columns.items()],
            }
        ],
        "transforms": [{"type": "dedup", "source_id": "events", "config": {"key": "id", "time_window": "24h"}}],
        "sink": {
            "type": "clickhouse",
            "connection_params": {
                "host": "127.0.0.1", "port": 8123, "database": "default", "username": "default", "password": "",
            },
            "table": pipeline,
            "create_table": {"order_by": "id"},
            "mapping": [{"name": n, "column_name": n, "column_type": column} for n, (_, column) in columns.items()],
            **sink,
        },
    }  # fmt: skip


def write_definition(folder: Path, definition: dict[str, Any]) -> Path:
    """Write a definition to a file of its name."""
    file = folder / f"{definition['pipeline_id']}.yaml"
    file.write_text(yaml.safe_dump(definition), encoding="utf-8")
    return file


@dataclass(frozen=True)
class Batch:
    """A micro-batch as the ledger has it: records read, milliseconds from its trigger to its row, when that was."""

    read: int
    milliseconds: int
    ended_ms: int


def batches(client: Client, pipeline: str, database: str = "default") -> list[Batch]:
    """The batches of a pipeline that read something, in their order; none before there is a ledger."""
    if not client.query(f"EXISTS {database}.glassflow_ledger").result_rows[0][0]:
        return []
    rows = client.query(
        "SELECT read, toUnixTimestamp64Milli(inserted_at) - toUnixTimestamp64Milli(batch_time), "
        f"toUnixTimestamp64Milli(inserted_at) FROM {database}.glassflow_ledger "
        "WHERE pipeline_id = {pipeline:String} AND read > 0 ORDER BY batch_id",
        parameters={"pipeline": pipeline},
    ).result_rows
    return [Batch(*row) for row in rows]


def second_half(done: list[Batch]) -> float:
    """Records a second from the end of the batch that passes half of them to the end of the last one.

    In the first half Java compiles what it runs later.
    """
    total, seen = sum(batch.read for batch in done), 0
    for index, batch in enumerate(done[:-1]):
        seen += batch.read
        if seen >= total / 2:
            rest = sum(later.read for later in done[index + 1 :])
            return rest / ((done[-1].ended_ms - batch.ended_ms) / 1000)
    raise SystemExit("too few batches; send more events")


def run_to_the_end(
    stack: Stack, definition: Path, others: Mapping[str, int] | None = None
) -> tuple[dict[str, int], dict[str, float]]:
    """Run a pipeline until it has caught up; gives its totals, and the memory of `driver` and of others in MiB.

    others: more process trees by name.
    """
    command = [*stack.run_command(definition), "--until-caught-up"]
    with subprocess.Popen(command, env=stack.environment, stdout=subprocess.PIPE, text=True) as driver:
        memory = Memory({"driver": driver.pid, **(others or {})})
        memory.start()
        try:
            out, _ = driver.communicate()
        except BaseException:
            driver.terminate()
            raise
    peak = memory.stop()
    if driver.returncode:
        raise SystemExit(f"{definition.stem} did not finish")
    return json.loads(out.splitlines()[-1]), peak


@contextmanager
def running_pipeline(stack: Stack, definition: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a pipeline beside the block; it finishes its batch when the block ends."""
    log = definition.with_suffix(".log")
    with log.open("w") as file:
        driver = subprocess.Popen(stack.run_command(definition), env=stack.environment, stdout=file, stderr=file)
    try:
        yield driver
    finally:
        driver.terminate()
        driver.wait()
    if driver.returncode:
        raise SystemExit(f"{definition.stem} failed:\n{log.read_text(encoding='utf-8')[-2000:]}")


def require_one_row_each(client: Client, table: str, keys: int) -> None:
    """Exit unless a table has one row of each of so many keys, and nothing else."""
    found = client.query(f"SELECT count(), uniqExact(id) FROM {table}").result_rows[0]
    if found != (keys, keys):
        raise SystemExit(f"{table}: {keys:,} keys were sent, the table has (rows, keys) {found}")


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float, what: str) -> None:
    """Wait for something that a running process is to do."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            raise SystemExit(f"the process ended before {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"after {seconds:g} s still not {what}")
        time.sleep(0.05)


class Memory(threading.Thread):
    """Samples the memory of process trees; `stop` gives the sample in which all of them together had most."""

    def __init__(self, roots: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._roots = roots
        self._over = threading.Event()
        self._peak: dict[str, float] = {}

    def run(self) -> None:
        """Sample until stopped."""
        while not self._over.wait(_SAMPLE_SECONDS):
            found = {name: sum(_proportional_set_size(pid) for pid in tree(root)) for name, root in self._roots.items()}
            if sum(found.values()) > sum(self._peak.values()):
                self._peak = found

    def stop(self) -> dict[str, float]:
        """MiB by name, pages that processes share counted once."""
        self._over.set()
        self.join()
        return {name: round(size) for name, size in self._peak.items()}


def tree(root: int) -> list[int]:
    """A process and all below it."""
    return _below(root, _children())


def cpu_seconds(*roots: int) -> float:
    """CPU time of processes and all below them, those included that have ended and were waited for."""
    return sum(cpu_seconds_by_name({str(root): root for root in roots}).values())


def cpu_seconds_by_name(roots: Mapping[str, int]) -> dict[str, float]:
    """The same of several, from one look at all processes."""
    children = _children()
    # utime, stime, cutime and cstime.
    ticks = {
        name: sum(int(field) for pid in _below(root, children) for field in _stat(pid)[11:15])
        for name, root in roots.items()
    }
    return {name: used / os.sysconf("SC_CLK_TCK") for name, used in ticks.items()}


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    return children


def _below(root: int, children: Mapping[int, list[int]]) -> list[int]:
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def birth(pid: int) -> int | None:
    """When a process began, in ticks since the machine did, which tells it from a later one of its number."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields of a process from its state on, which follows its name; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _proportional_set_size(pid: int) -> float:
    """MiB of a process, shared pages divided among those that share them; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def say(text: str) -> None:
    """Tell how far the benchmark is."""
    print(text, file=sys.stderr, flush=True)
