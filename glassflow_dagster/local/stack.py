"""The local stack: a Kafka broker and a ClickHouse server in the background, with their data in one folder.

    DIR/kafka  DIR/clickhouse            data
    DIR/logs                             log files
    DIR/kafka.json  DIR/clickhouse.json  process records: process id, start time and ports

An object store is a third server, `object-store`, where it is asked for. All listen on loopback only. Later commands
find the processes by these records, never by name.
"""

import http
import os
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.broker import broker_answers, prepare_broker
from glassflow_dagster.local.object_store import object_store_answers, prepare_object_store
from glassflow_dagster.local.port_holders import holder_of
from glassflow_dagster.local.ports import free_port, is_free, require_free
from glassflow_dagster.runtime import direct
from glassflow_dagster.runtime.file_lock import locked_file
from glassflow_dagster.runtime.process import Background, read_process, start_process, write_process

DEFAULT_KAFKA_PORT, DEFAULT_CLICKHOUSE_PORT = 9092, 8123

# Both usually start within 3 seconds; recovery on a slow disk may need far longer.
_START_SECONDS = 120

# Time for the broker to close its segments and for ClickHouse to finish its requests.
_END_SECONDS = 30

_POLL_SECONDS = 0.1

Report = Callable[[str], None]


@dataclass(frozen=True)
class ServerStatus:
    """The status of one server; `pid`, `port` and `address` (host:port) are None while it is not running.

    native_address: host:port of ClickHouse's native protocol; None when it is off, and for Kafka.
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
    """The status of the servers. object_store: None where it was not started, or was stopped."""

    kafka: ServerStatus
    clickhouse: ServerStatus
    object_store: ServerStatus | None = None

    @property
    def servers(self) -> tuple[ServerStatus, ...]:
        """All servers, Kafka first."""
        return (self.kafka, self.clickhouse, *((self.object_store,) if self.object_store else ()))

    @property
    def running(self) -> bool:
        """Whether all run."""
        return all(server.running for server in self.servers)


@dataclass(frozen=True)
class _Server:
    """A server's names and paths; `option` is the command line option for its port."""

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
        """Return the server's process; None when it is not running."""
        process = read_process(self.record)
        return process if process and process.alive() else None

    def status(self) -> ServerStatus:
        """Return the server's status from its process record."""
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


@dataclass(frozen=True)
class _Wanted:
    """A server that is to run: its port, how it is started, and whether it answers."""

    server: _Server
    port: int
    start: Callable[[], Background]
    answers: Callable[[], bool]


def up(  # noqa: PLR0913, PLR0917 - a port each
    data: Path,
    kafka_port: int,
    clickhouse_port: int,
    report: Report,
    native_port: int | None = None,
    object_store_port: int | None = None,
) -> StackStatus:
    """Start the servers that are not running and wait until they answer.

    native_port: for ClickHouse's native protocol; None switches it off.
    object_store_port: None for no object store.

    Raises GlassflowError when a port is taken or differs from that of a running server, when the folder cannot be
    written, or when a server does not start; the servers that this call has started are then stopped.
    """
    if kafka_port == clickhouse_port:
        raise GlassflowError(f"Kafka and ClickHouse cannot share port {kafka_port}; choose another with --kafka-port N")
    kafka, clickhouse, store = _servers(data)
    wanted = [
        _Wanted(
            kafka,
            kafka_port,
            lambda: _start_kafka(kafka, kafka_port, report),
            lambda: broker_answers(kafka_port, kafka.data),
        ),
        _Wanted(
            clickhouse,
            clickhouse_port,
            lambda: _start_clickhouse(clickhouse, clickhouse_port, native_port, report),
            lambda: _clickhouse_answers(clickhouse_port),
        ),
    ]
    if object_store_port:
        start = partial(_start_object_store, store, object_store_port, report)
        wanted.append(_Wanted(store, object_store_port, start, partial(object_store_answers, object_store_port)))
    with _locked(data):
        running = {each.server: _running_on(each.server, each.port) for each in wanted}
        missing = [each for each in wanted if not running[each.server]]
        for each in missing:
            require_free(each.port, each.server.name, each.server.option)
        _require_native_port(clickhouse, running[clickhouse], native_port)
        _start_all(wanted, missing)
        return status(data)


def ports_beside_others(data: Path, report: Report) -> tuple[int, int]:
    """Return the ports of Kafka and of ClickHouse for the stack in a folder, which may be one of several on this host.

    The environment may name them. Else a running server keeps its port; one that is not running gets the default port,
    or where another process has that, a free one: `report` then says so, and what would free the default.
    """
    kafka, clickhouse, _ = _servers(data)
    return (
        _port_beside_others(kafka, "GLASSFLOW_KAFKA_PORT", DEFAULT_KAFKA_PORT, report),
        _port_beside_others(clickhouse, "GLASSFLOW_CLICKHOUSE_PORT", DEFAULT_CLICKHOUSE_PORT, report),
    )


def _port_beside_others(server: _Server, variable: str, default: int, report: Report) -> int:
    if named := os.environ.get(variable):
        return int(named)
    if process := server.running():
        return process.port
    if is_free(default):
        return default
    port, holder = free_port(), holder_of(default)
    taken = f"{holder}; {holder.remedy} to have that port" if holder else "another process"
    report(f"{server.name} gets port {port}, since port {default} is in use by {taken}")
    return port


def _start_all(wanted: Sequence[_Wanted], missing: Sequence[_Wanted]) -> None:
    """Start the missing servers, and wait until all that are wanted answer; stop those again when one does not."""
    started: list[tuple[_Server, Background]] = []
    try:
        for each in missing:
            started.append((each.server, each.start()))  # noqa: PERF401 - those before an error are stopped
        # Also for servers that were running: an `up` that was killed may have left them while starting.
        for each in wanted:
            _wait(each.server, each.answers)
    except BaseException:
        for server, process in started:
            _stop(server, process)
        raise


def down(data: Path, report: Report) -> None:
    """Stop the servers that are running and return when their processes have ended."""
    servers = _servers(data)
    if not data.is_dir():
        report("nothing is running")
        return
    with _locked(data):
        running = [(server, process) for server in servers if (process := server.running())]
        for server, process in running:
            report(f"stopping {server.name} (process {process.pid})")
            _stop(server, process)
        if not running:
            report("nothing is running")


def status(data: Path) -> StackStatus:
    """Return the status of the servers from their process records; connects to no server."""
    kafka, clickhouse, store = _servers(data)
    return StackStatus(kafka.status(), clickhouse.status(), store.status() if store.record.exists() else None)


def _servers(data: Path) -> tuple[_Server, _Server, _Server]:
    """Return Kafka, ClickHouse and the object store with their paths below a data folder."""
    folder = data.absolute()
    return (
        _Server("kafka", "Kafka", "--kafka-port", folder),
        _Server("clickhouse", "ClickHouse", "--clickhouse-port", folder),
        _Server("object-store", "the object store", "--object-store-port", folder),
    )


@contextmanager
def _locked(data: Path) -> Iterator[None]:
    """Create the folders and hold a lock in them, so that only one `up` or `down` runs at a time.

    Raises GlassflowError when the folder cannot be written.
    """

    def make_folders() -> None:
        for folder in ("logs", "kafka", "clickhouse"):
            (data / folder).mkdir(parents=True, exist_ok=True)

    with locked_file(data / ".lock", "make it writable, or choose another folder with --data DIR", make_folders):
        yield


def _running_on(server: _Server, port: int) -> Background | None:
    """Return the server's process, None when it is not running; raises when it runs on another port."""
    process = server.running()
    if process and process.port != port:
        raise GlassflowError(
            f"{server.name} of {server.folder} already runs on port {process.port}, not {port}; give "
            f"{server.option} {process.port}, or stop it first: glassflow-dagster stack down --data {server.folder}"
        )
    return process


def _require_native_port(server: _Server, running: Background | None, port: int | None) -> None:
    """Raise GlassflowError when the native port is taken, or ClickHouse is already running without it."""
    if port and not running:
        require_free(port, f"{server.name}'s native protocol", "--native-port")
    if running and port and running.native_port != port:
        raise GlassflowError(
            f"{server.name} of {server.folder} already runs, without port {port} for its native protocol; stop it "
            f"first: glassflow-dagster stack down --data {server.folder}"
        )


def _start_kafka(server: _Server, port: int, report: Report) -> Background:
    """Start Kafka in the background, its storage formatted if needed; return its process."""
    broker = prepare_broker(server.data, port, report)
    report(f"starting Kafka at 127.0.0.1:{port}")
    return _start(server, broker.command, port, broker.variables)


def _start_clickhouse(server: _Server, port: int, native_port: int | None, report: Report) -> Background:
    """Start ClickHouse in the background and return its process; raises GlassflowError when chdb is not installed."""
    if find_spec("chdb") is None:
        raise GlassflowError("the embedded ClickHouse is not installed; run: pip install 'glassflow-dagster[embedded]'")
    report(f"starting ClickHouse at 127.0.0.1:{port}")
    module = "glassflow_dagster.local.embedded_clickhouse"
    command = [sys.executable, "-m", module, "--data", str(server.data), "--port", str(port)]
    command += ["--native-port", str(native_port)] if native_port else []
    return _start(server, command, port, variables={}, native_port=native_port)


def _start_object_store(server: _Server, port: int, report: Report) -> Background:
    """Start the object store in the background and return its process; build it first if it is not there."""
    store = prepare_object_store(server.data, port, report)
    report(f"starting the object store at 127.0.0.1:{port}")
    return _start(server, store.command, port, store.variables)


def _start(
    server: _Server, command: Sequence[str], port: int, variables: Mapping[str, str], native_port: int | None = None
) -> Background:
    """Start a detached process and write its record; without a record it would not be found again, so it is ended."""
    process = replace(start_process(command, port, server.log, variables), native_port=native_port)
    try:
        write_process(process, server.record)
    except BaseException:
        process.end(_END_SECONDS)
        raise
    return process


def _clickhouse_answers(port: int) -> bool:
    """Return whether ClickHouse's HTTP interface answers a ping."""
    try:
        with direct.opener.open(f"http://127.0.0.1:{port}/ping", timeout=1) as answer:
            return bool(answer.status == http.HTTPStatus.OK)
    except (urllib.error.URLError, OSError):
        return False


def _wait(server: _Server, answers: Callable[[], bool]) -> None:
    """Wait until a server answers; raises GlassflowError when its process ends or the time is over."""
    deadline = time.monotonic() + _START_SECONDS
    while not answers():
        if not server.running():
            raise GlassflowError(f"{server.name} did not start: {_last_line(server.log)}; see {server.log}")
        if time.monotonic() > deadline:
            raise GlassflowError(f"{server.name} does not answer after {_START_SECONDS} s; see {server.log}")
        time.sleep(_POLL_SECONDS)


def _stop(server: _Server, process: Background) -> None:
    """End a server's process and delete its record."""
    process.end(_END_SECONDS)
    server.record.unlink(missing_ok=True)


def _last_line(log: Path) -> str:
    """Return the last line of a log that is not part of a stack trace: the reason of a failure."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    # Java prints the exception first, then the frames of its stack trace.
    messages = [line for line in lines if not line.startswith(("at ", "... "))]
    return messages[-1] if messages else "no output"
