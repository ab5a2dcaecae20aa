"""Bytewax: a stateful step by key, blocks collected, a dynamic sink, recovery on.

Guarantee: at least once into ClickHouse; after a crash it resumes from the last snapshot and writes what came after
it again.
State: in memory, changed keys written to SQLite recovery files at each snapshot (every ten seconds, its default);
kept for ever.
Package: bytewax
Tuned: orjson, 1,000 messages a poll, one process of one worker a partition (workers as threads share one Python).
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import orjson
from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import init_db_dir

from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS, Task

SNAPSHOT_SECONDS = 10
# Keys of the `collect` step: one per worker.
COLLECTORS = 2

Event = dict[str, Any]


class Blocks(StatelessSinkPartition[tuple[str, list[Event]]]):
    """Writes each block as one insert."""

    def __init__(self, task: Task) -> None:
        self._task, self._client = task, task.client()

    def write_batch(self, items: list[tuple[str, list[Event]]]) -> None:
        """Insert a collected block."""
        for _, block in items:
            self._task.insert(self._client, block)


class ClickHouseSink(DynamicSink[tuple[str, list[Event]]]):
    """A sink with one connection per worker."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> Blocks:
        """Return the partition of a worker, with a connection of its own."""
        return Blocks(self._task)


def keyed(messages: list[KafkaSourceMessage]) -> Iterable[tuple[str, Event]]:
    """Parse the messages of a poll into (id, event)."""
    events = (orjson.loads(message.value) for message in messages)
    return [(event["id"], event) for event in events]


def first(seen: bool | None, event: Event) -> tuple[bool, list[Event]]:
    """Return the state of a key that was seen, and the event unless its key was seen before."""
    return True, [] if seen else [event]


def flow() -> Dataflow:
    """Return the dataflow for `bytewax.run`."""
    task = Task.from_environment()
    dataflow = Dataflow("dedup")
    messages = op.input("read", dataflow, KafkaSource([task.brokers], [task.topic]))
    events = op.flat_map_batch("parse", messages, keyed)
    new = op.stateful_flat_map("dedup", events, first)
    spread = op.map("spread", new, lambda item: (str(hash(item[0]) % COLLECTORS), item[1]))
    blocks = op.collect("collect", spread, timedelta(seconds=BLOCK_SECONDS), BLOCK_ROWS)
    op.output("write", blocks, ClickHouseSink(task))
    return dataflow


def main() -> None:
    """Start one process per partition, as Bytewax's documentation of `bytewax.run` describes."""
    task = Task.from_environment()
    recovery = task.state / "recovery"
    if not recovery.exists():
        recovery.mkdir(parents=True)
        init_db_dir(recovery, task.partitions)
    addresses = ";".join(f"127.0.0.1:{_free_port()}" for _ in range(task.partitions))
    command = [sys.executable, "-m", "bytewax.run", "benchmarks.peers.bytewax_flow:flow()", "-r", str(recovery)]
    command += ["-s", str(SNAPSHOT_SECONDS), "-b", "0", "-a", addresses]
    # Python's string hash distributes keys over workers, so all processes must have the same hash seed.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    members = [subprocess.Popen([*command, "-i", str(n)], env=environment) for n in range(task.partitions)]
    raise SystemExit(max(member.wait() for member in members))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
