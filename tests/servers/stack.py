"""The embedded Kafka and ClickHouse, which all worker processes of a test run share."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, status, up
from glassflow_dagster.runtime.cache import exclusive


@dataclass(frozen=True)
class Stack:
    """The addresses of this test session's embedded Kafka and ClickHouse."""

    kafka_port: int
    clickhouse_port: int
    # Their processes, which another worker process of this run may have started.
    pids: tuple[int, ...]

    @property
    def kafka(self) -> str:
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def clickhouse(self) -> str:
        return f"http://default:@127.0.0.1:{self.clickhouse_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return environment variables that make any definition use this stack, without changing the process's own."""
        return {"GLASSFLOW_KAFKA_BROKERS": self.kafka, "GLASSFLOW_CLICKHOUSE_URL": self.clickhouse}


@contextmanager
def shared_stack(data: Path) -> Iterator[Stack]:
    """Start the embedded servers in a folder, or use those of another worker process; the last one stops them."""
    data.mkdir(exist_ok=True)
    with (data / "users").open("w") as users:
        with exclusive(data):
            fcntl.flock(users, fcntl.LOCK_SH)
            running = status(data)
            kafka_port = running.kafka.port or free_port()
            clickhouse_port = running.clickhouse.port or free_port()
            up(data, kafka_port, clickhouse_port, print)
            pids = tuple(server.pid for server in status(data).servers if server.pid)
        try:
            yield Stack(kafka_port, clickhouse_port, pids)
        finally:
            with exclusive(data):
                fcntl.flock(users, fcntl.LOCK_UN)
                # Refused while another worker holds the shared lock.
                with suppress(BlockingIOError):
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    down(data, print)
