"""The embedded stack that the benchmarks run on."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from benchmarks.console import say
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up


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
    """Start broker and ClickHouse in a new folder; stop both and delete the folder at the end of the block.

    SIGTERM ends the block, too.
    """
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="glassflow-bench-") as folder:
        data = Path(folder) / "stack"
        stack_status = up(data, free_port(), free_port(), say)
        kafka, clickhouse = stack_status.kafka, stack_status.clickhouse
        if not (kafka.port and kafka.pid and clickhouse.port and clickhouse.pid):
            raise SystemExit("the stack is down as soon as it is up; look at its logs")
        try:
            yield Stack(Path(folder), f"127.0.0.1:{kafka.port}", clickhouse.port, kafka.pid, clickhouse.pid)
        finally:
            down(data, say)


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit("ended by SIGTERM")
