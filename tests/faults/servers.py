"""The real servers, each behind a proxy: the pipeline uses the proxies, the tests connect to the servers directly."""

import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from glassflow_dagster.local.broker import broker_answers, prepare_broker
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.process import Background, start_process
from tests.faults.doors import Door, Loopback
from tests.faults.http_proxy import HttpProxy
from tests.faults.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

# A broker that was killed took 70 s on a busy machine.
UP_SECONDS = 180

# It logs each refused connection, of which there are many here.
logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)


class Server:
    """A server process that can be killed, paused and restarted on its data."""

    def __init__(self, name: str, command: list[str], port: int, log: Path, variables: dict[str, str]) -> None:
        self.name, self._command, self.port, self._log, self._variables = name, command, port, log, variables
        self.process: Background | None = None

    def start(self) -> None:
        self.process = start_process(self._command, self.port, self._log, self._variables)

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        assert self.process
        os.kill(self.process.pid, signal.SIGKILL)
        while self.process.alive():
            time.sleep(0.02)

    def pause(self) -> None:
        assert self.process
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the paused process."""
        assert self.process
        os.kill(self.process.pid, signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive()

    def log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def condition(self) -> str:
        """Return whether the process runs or has ended, with the last line of its log."""
        return f"({'running' if self.alive else 'ended'}: {self.log_tail()})"

    def end(self) -> None:
        if self.process:
            self.process.end(20)


class Servers:
    """Kafka and ClickHouse with their proxies; `kafka` and `client` bypass the proxies.

    kafka_door, clickhouse_door: where the proxies listen.
    """

    def __init__(self, folder: Path, kafka_door: Door | None = None, clickhouse_door: Door | None = None) -> None:
        kafka_door = kafka_door or Loopback()
        folder.mkdir(parents=True, exist_ok=True)
        ports = [free_port() for _ in range(5)]
        kafka, behind_proxy, clickhouse = ports[:3]
        self.kafka_proxy = TcpProxy(ports[3], behind_proxy, kafka_door)
        self.clickhouse_proxy = self._make_clickhouse_proxy(ports[4], clickhouse, clickhouse_door)
        self._kafka_folder = folder / "kafka"
        self.broker = _broker(self._kafka_folder, kafka, behind_proxy, f"{kafka_door.address}:{ports[3]}")
        self.clickhouse = self._make_clickhouse(folder, clickhouse)
        for server in self.all:
            server.start()
        self.wait()

    @property
    def all(self) -> Sequence[Server]:
        """Return the servers in the order in which they start."""
        return self.broker, self.clickhouse

    @property
    def kafka(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    def client(self) -> Client:
        return clickhouse_connect.get_client(host="127.0.0.1", port=self.clickhouse.port, query_limit=0)

    def wait(self) -> None:
        """Wait until both servers answer."""
        self.wait_for_kafka()
        self.wait_for_clickhouse()

    def wait_for_kafka(self) -> None:
        answers = functools.partial(broker_answers, self.broker.port, self._kafka_folder)
        wait_until(answers, "the broker is up", UP_SECONDS, self.broker.condition)

    def wait_for_clickhouse(self) -> None:
        wait_until(self._clickhouse_answers, "ClickHouse is up", UP_SECONDS, self.clickhouse.condition)

    def restart_ended(self) -> list[str]:
        """Restart the servers that have ended; return a line about each."""
        ended = [server for server in self.all if not server.alive]
        output = [f"{server.name} has ended by itself: {server.log_tail()}" for server in ended]
        for server in ended:
            server.start()
        self.wait()
        return output

    def close(self) -> None:
        for proxy in (self.kafka_proxy, self.clickhouse_proxy):
            proxy.close()
        for server in reversed(self.all):
            server.end()

    def _make_clickhouse_proxy(self, port: int, upstream: int, door: Door | None) -> HttpProxy:
        """Return the proxy by which the pipeline reaches ClickHouse."""
        return HttpProxy(port, upstream, door)

    def _make_clickhouse(self, folder: Path, port: int) -> Server:
        """Prepare the server that the tests query."""
        command = [sys.executable, "-m", "glassflow_dagster.local.embedded_clickhouse", "--data", str(folder / "ch")]
        command += ["--port", str(port)]
        (folder / "ch").mkdir(exist_ok=True)
        return Server("ClickHouse", command, port, folder / "clickhouse.log", {})

    def _clickhouse_answers(self) -> bool:
        try:
            self.client().close()
        except Exception:  # noqa: BLE001 - whatever the error, the server is not up
            return False
        return True


def _broker(folder: Path, port: int, behind_proxy: int, proxy: str) -> Server:
    """Prepare the embedded broker with a second listener that advertises the proxy's address."""
    made = prepare_broker(folder, port, lambda _: None)
    properties = folder / "server.properties"
    lines = []
    for line in properties.read_text().splitlines():
        name = line.partition("=")[0]
        extra = {
            "listeners": f",PROXIED://127.0.0.1:{behind_proxy}",
            "advertised.listeners": f",PROXIED://{proxy}",
            "listener.security.protocol.map": ",PROXIED:PLAINTEXT",
        }
        lines.append(line + extra.get(name, ""))
    properties.write_text("\n".join(lines) + "\n")
    return Server("Kafka", list(made.command), port, folder / "broker.log", dict(made.variables))
