"""The embedded stack that the benchmarks run on."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from benchmarks.console import say
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up

# The beginning of a command of this checkout.
OWN_PROGRAM = (sys.executable, "-m", "glassflow_dagster")
# The user with a password is for programs that do without none.
USER = "bench"
PASSWORD = USER
_USERS = f"""<clickhouse>
  <profiles><default/></profiles><quotas><default/></quotas>
  <users>
    <default><password></password><networks><ip>::/0</ip></networks><profile>default</profile></default>
    <{USER}><password>{PASSWORD}</password><networks><ip>::/0</ip></networks><profile>default</profile></{USER}>
  </users>
</clickhouse>
"""


@dataclass(frozen=True)
class Stack:
    """A running Kafka broker and ClickHouse: their ports, their pids, and the folder with their data.

    clickhouse_port is that of HTTP; object_store_pid None without an object store.
    """

    folder: Path
    brokers: str
    clickhouse_port: int
    clickhouse_native_port: int
    kafka_pid: int
    clickhouse_pid: int
    object_store_pid: int | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return environment variables that make any definition run on this stack."""
        return {
            **os.environ,
            "GLASSFLOW_KAFKA_BROKERS": self.brokers,
            "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{self.clickhouse_port}",
        }

    @property
    def state(self) -> Path:
        """Return the state folder of the stack's pipelines."""
        return self.folder / "state"

    def client(self) -> Client:
        """Connect to the stack's ClickHouse."""
        return clickhouse_connect.get_client(host="127.0.0.1", port=self.clickhouse_port)

    def run_command(self, definition: Path, program: Sequence[str] = OWN_PROGRAM) -> list[str]:
        """Return the command that runs a pipeline on this stack."""
        return [*program, "run", str(definition), "--state", str(self.state)]


@contextmanager
def running_stack(object_store_port: int | None = None) -> Iterator[Stack]:
    """Start broker and ClickHouse in a new folder; stop both and remove the folder at the end of the block.

    object_store_port: of an object store beside them; None for none. SIGTERM ends the block, too.
    """
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="glassflow-bench-") as folder:
        data = Path(folder) / "stack"
        native_port = free_port()
        (data / "clickhouse").mkdir(parents=True)
        (data / "clickhouse" / "users.xml").write_text(_USERS, encoding="utf-8")
        found = up(data, free_port(), free_port(), say, native_port, object_store_port)
        kafka, clickhouse = found.kafka, found.clickhouse
        if not (kafka.port and kafka.pid and clickhouse.port and clickhouse.pid):
            raise SystemExit("the stack is down as soon as it is up; look at its logs")
        try:
            yield Stack(
                folder=Path(folder),
                brokers=f"127.0.0.1:{kafka.port}",
                clickhouse_port=clickhouse.port,
                clickhouse_native_port=native_port,
                kafka_pid=kafka.pid,
                clickhouse_pid=clickhouse.pid,
                object_store_pid=found.object_store.pid if found.object_store else None,
            )
        finally:
            down(data, say)


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit("ended by SIGTERM")
