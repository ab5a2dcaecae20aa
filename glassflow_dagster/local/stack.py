"""The local stack: a Kafka broker and a ClickHouse, in the background, their data in one folder.

    DIR/kafka  DIR/clickhouse      data
    DIR/logs                       what they say
    DIR/kafka.json  clickhouse.json which processes they are

Both listen on loopback only, and are found again through their records, never by name.
"""

import fcntl
import http
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.broker import broker_answers, prepare_broker
from glassflow_dagster.local.ports import require_free
from glassflow_dagster.runtime.process import Background, record, recorded, start

# Both are up in 3 seconds here; a slow disk with much to recover may need far longer.
_START_SECONDS = 120

# The broker closes its segments, ClickHouse finishes its requests.
_END_SECONDS = 30

_POLL_SECONDS = 0.1

Report = Callable[[str], None]


@dataclass(frozen=True)
class ServerStatus:
    """One server: `pid`, `port` and `address` (host:port) are None while it is not running.

    native_address: where ClickHouse speaks its native protocol, None where it does not, and for Kafka.
    """

    name: str
    running: bool
    pid: int | None
    port: int | None
    address: str | None
    log: Path
    data: Path
    native_address: str | None = None


@dataclass(frozen=True)
class StackStatus:
    """Both servers."""

    kafka: ServerStatus
    clickhouse: ServerStatus

    @property
    def servers(self) -> tuple[ServerStatus, ServerStatus]:
        """Both of them."""
        return self.kafka, self.clickhouse

    @property
    def running(self) -> bool:
        """Whether both run."""
        return all(server.running for server in self.servers)


@dataclass(frozen=True)
class _Server:
    """Where a server's things lie, and the option that chooses its port."""

    key: str
    name: str
    option: str
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / self.key

    @property
    def log(self) -> Path:
        return self.folder / "logs" / f"{self.key}.log"

    @property
    def record(self) -> Path:
        return self.folder / f"{self.key}.json"

    def running(self) -> Background | None:
        process = recorded(self.record)
        return process if process and process.alive() else None

    def status(self) -> ServerStatus:
        process = self.running()
        return ServerStatus(
            name=self.name,
            running=process is not None,
            pid=process.pid if process else None,
            port=process.port if process else None,
            address=f"127.0.0.1:{process.port}" if process else None,
            log=self.log,
            data=self.data,
            native_address=f"127.0.0.1:{process.native_port}" if process and process.native_port else None,
        )


def up(
    data: Path, kafka_port: int, clickhouse_port: int, report: Report, native_port: int | None = None
) -> StackStatus:
    """Start what is not running yet and return when both answer.

    native_port: where ClickHouse speaks its native protocol, too, if it is started here; None for nowhere.

    Raises GlassflowError when a port is taken or differs from that of a running server, when the folder cannot be
    written, or when a server does not come up; what this call has started is ended again then.
    """
    if kafka_port == clickhouse_port:
        raise GlassflowError(f"Kafka and ClickHouse cannot share port {kafka_port}; choose another with --kafka-port N")
    kafka, clickhouse = _servers(data)
    with _locked(data):
        running = {
            server: _running_on(server, port) for server, port in ((kafka, kafka_port), (clickhouse, clickhouse_port))
        }
        if not running[kafka]:
            require_free(kafka_port, kafka.name, kafka.option)
        if not running[clickhouse]:
            require_free(clickhouse_port, clickhouse.name, clickhouse.option)
            if native_port:
                require_free(native_port, f"{clickhouse.name}'s native protocol", "--native-port")
        else:
            _require_native_port(clickhouse, running[clickhouse], native_port)
        started: list[tuple[_Server, Background]] = []
        try:
            if not running[kafka]:
                started.append((kafka, _start_kafka(kafka, kafka_port, report)))
            if not running[clickhouse]:
                started.append((clickhouse, _start_clickhouse(clickhouse, clickhouse_port, native_port, report)))
            # Also those that ran before: an `up` that was killed may have left them on their way.
            _wait(kafka, lambda: broker_answers(kafka_port, kafka.data))
            _wait(clickhouse, lambda: _clickhouse_answers(clickhouse_port))
        except BaseException:
            for server, process in started:
                _end(server, process)
            raise
        return status(data)


def down(data: Path, report: Report) -> None:
    """End both servers and return when they are gone. What does not run is left alone."""
    servers = _servers(data)
    if not data.is_dir():
        report("nothing is running")
        return
    with _locked(data):
        running = [(server, process) for server in servers if (process := server.running())]
        for server, process in running:
            report(f"stopping {server.name} (process {process.pid})")
            _end(server, process)
        if not running:
            report("nothing is running")


def status(data: Path) -> StackStatus:
    """What runs now. Needs no server and writes nothing."""
    kafka, clickhouse = _servers(data)
    return StackStatus(kafka.status(), clickhouse.status())


def _servers(data: Path) -> tuple[_Server, _Server]:
    folder = data.absolute()
    return (
        _Server("kafka", "Kafka", "--kafka-port", folder),
        _Server("clickhouse", "ClickHouse", "--clickhouse-port", folder),
    )


@contextmanager
def _locked(data: Path) -> Iterator[None]:
    """One `up` or `down` at a time in a folder, and the folder there and writable."""
    try:
        for folder in ("logs", "kafka", "clickhouse"):
            (data / folder).mkdir(parents=True, exist_ok=True)
        lock = (data / ".lock").open("w")
    except OSError as error:
        raise GlassflowError(
            f"{data}: cannot be written ({error.strerror}); make it writable, or choose another folder with --data DIR"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _running_on(server: _Server, port: int) -> Background | None:
    process = server.running()
    if process and process.port != port:
        raise GlassflowError(
            f"{server.name} of {server.folder} already runs on port {process.port}, not {port}; give "
            f"{server.option} {process.port}, or stop it first: glassflow-dagster stack down --data {server.folder}"
        )
    return process


def _require_native_port(server: _Server, running: Background | None, port: int | None) -> None:
    if running and port and running.native_port != port:
        raise GlassflowError(
            f"{server.name} of {server.folder} already runs, without port {port} for its native protocol; stop it "
            f"first: glassflow-dagster stack down --data {server.folder}"
        )


def _start_kafka(server: _Server, port: int, report: Report) -> Background:
    broker = prepare_broker(server.data, port, report)
    report(f"starting Kafka at 127.0.0.1:{port}")
    return _started(server, broker.command, port, broker.variables)


def _start_clickhouse(server: _Server, port: int, native_port: int | None, report: Report) -> Background:
    if find_spec("chdb") is None:
        raise GlassflowError("the embedded ClickHouse is not installed; run: pip install 'glassflow-dagster[embedded]'")
    report(f"starting ClickHouse at 127.0.0.1:{port}")
    module = "glassflow_dagster.local.embedded_clickhouse"
    command = [sys.executable, "-m", module, "--data", str(server.data), "--port", str(port)]
    command += ["--native-port", str(native_port)] if native_port else []
    return _started(server, command, port, {}, native_port)


def _started(
    server: _Server, command: Sequence[str], port: int, variables: Mapping[str, str], native_port: int | None = None
) -> Background:
    process = replace(start(command, port, server.log, variables), native_port=native_port)
    try:
        record(process, server.record)
    except BaseException:
        process.end(_END_SECONDS)
        raise
    return process


def _clickhouse_answers(port: int) -> bool:
    # Never through a proxy of the environment: this is loopback.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://127.0.0.1:{port}/ping", timeout=1) as answer:
            return bool(answer.status == http.HTTPStatus.OK)
    except (urllib.error.URLError, OSError):
        return False


def _wait(server: _Server, answers: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not answers():
        if not server.running():
            raise GlassflowError(f"{server.name} did not start: {_last_line(server.log)}; see {server.log}")
        if time.monotonic() > deadline:
            raise GlassflowError(f"{server.name} does not answer after {_START_SECONDS} s; see {server.log}")
        time.sleep(_POLL_SECONDS)


def _end(server: _Server, process: Background) -> None:
    process.end(_END_SECONDS)
    server.record.unlink(missing_ok=True)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    # A stack trace ends in places; what went wrong stands in front of them.
    told = [line for line in lines if not line.startswith(("at ", "... "))]
    return told[-1] if told else "it said nothing"
