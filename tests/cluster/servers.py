"""Kafka, ClickHouse and an object store, the embedded ones, at an address that other hosts reach."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from glassflow_dagster.local.broker import prepare_broker
from glassflow_dagster.local.object_store import (
    BUCKET,
    object_store_answers,
    object_store_variables,
    prepare_object_store,
)
from glassflow_dagster.local.ports import free_port
from tests.support.waiting import wait_until

# The servers of the product listen on loopback only, on purpose.
_LOOPBACK = "127.0.0.1"
_CLICKHOUSE = """
from glassflow_dagster.local import embedded_clickhouse as server
server.CONFIG = server.CONFIG.replace("<listen_host>127.0.0.1<", "<listen_host>0.0.0.0<")
server.main()
"""


@dataclass(frozen=True)
class Servers:
    """Servers at an address. store: environment variables by which the clients of S3 find the object store."""

    address: str
    kafka_port: int
    clickhouse_port: int
    store: Mapping[str, str]

    @property
    def brokers(self) -> str:
        return f"{self.address}:{self.kafka_port}"

    @property
    def clickhouse_url(self) -> str:
        return f"http://default:@{self.address}:{self.clickhouse_port}"

    @property
    def state_url(self) -> str:
        return f"s3a://{BUCKET}/state"


@contextmanager
def running_servers(folder: Path, address: str) -> Iterator[Servers]:
    """Run the servers while the block runs. address: one of this machine's; they also answer on loopback."""
    kafka, clickhouse, store = free_port(), free_port(), free_port()
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        broker = prepare_broker(folder / "kafka", kafka, print)
        properties = folder / "kafka" / "server.properties"
        at_address = properties.read_text().replace(f"PLAINTEXT://{_LOOPBACK}", f"PLAINTEXT://{address}")
        properties.write_text(at_address)
        _start(stack, broker.command, broker.variables, folder / "kafka.log")
        data = folder / "clickhouse"
        command = [sys.executable, "-c", _CLICKHOUSE, "--data", str(data), "--port", str(clickhouse)]
        _start(stack, command, {}, folder / "clickhouse.log")
        objects = prepare_object_store(folder / "objects", store, print)
        everywhere = [part.replace(f"{_LOOPBACK}:", "0.0.0.0:") for part in objects.command]
        _start(stack, everywhere, objects.variables, folder / "objects.log")
        servers = Servers(
            address,
            kafka,
            clickhouse,
            {**object_store_variables(store), "AWS_ENDPOINT_URL": f"http://{address}:{store}"},
        )
        wait_until(lambda: _answer(servers, store), "the servers answer")
        yield servers


def _start(stack: ExitStack, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
    """Start a server, which the stack ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=output, stderr=output)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _answer(servers: Servers, store_port: int) -> bool:
    """Return whether all of them answer."""
    try:
        AdminClient({"bootstrap.servers": servers.brokers, "log_level": 0}).list_topics(timeout=2)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"http://{servers.address}:{servers.clickhouse_port}/ping", timeout=2):
            return object_store_answers(store_port)
    except Exception:  # noqa: BLE001 - whatever a client says of a server that is not up yet
        return False
