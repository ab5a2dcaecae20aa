"""Starts and stops the process of a pool, and asks it which drivers are attached."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from glassflow_dagster.control.heartbeat import make_pipeline_folder
from glassflow_dagster.control.log_file import rotate_if_full, tail
from glassflow_dagster.control.pool_endpoint import (
    Endpoint,
    Reply,
    Request,
    forget_crashes,
    pool_folder,
    read_endpoint,
    receive_line,
    send_line,
)
from glassflow_dagster.definition.model.spark import DEFAULT_MEMORY, DRIVER_MEMORY, allowed_settings, spark_settings
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.file_lock import locked_file
from glassflow_dagster.runtime.process import Background

SERVER = (sys.executable, "-m", "glassflow_dagster.driver.pool.server")
_SETTINGS = "settings.json"
# The start of a JVM on a loaded machine.
START_SECONDS = 120.0
# The pool waits that long for queries that end, and a little longer for its JVM.
STOP_SECONDS = 60.0
# An answer of the pool without a wait for anything.
ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.1
# Of the machine and of the user: where programs, libraries, certificates and files are, the language and the proxy.
_INHERITED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME",
    "JAVA_HOME", "JAVA_TOOL_OPTIONS", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_ARENA_MAX",
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "GLASSFLOW_CACHE", "GLASSFLOW_IVY_SETTINGS", "GLASSFLOW_MAVEN_REPOSITORY", "SPARK_LOCAL_IP",
})  # fmt: skip
_INHERITED_BEGINS = "LC_"


def start_pool(state: Path, name: str, report: Callable[[str], None], settings: Mapping[str, str]) -> Endpoint:
    """Start a pool with Spark settings, now and whenever a driver starts it; return its endpoint.

    Pipelines that were held back are let in again. Raises `GlassflowError` for settings that are not allowed, where it
    runs with other settings, and as `ensure_pool` does.
    """
    allowed = allowed_settings(settings, "--conf")
    folder = pool_folder(state.resolve(), name)
    endpoint = read_endpoint(folder)
    if endpoint and allowed != _settings(folder):
        raise GlassflowError(
            f"pool {name}: runs with other settings; stop it first: glassflow-dagster pool stop {name}"
        )
    make_pipeline_folder(folder)
    (folder / _SETTINGS).write_text(json.dumps(allowed))
    forget_crashes(folder)
    return ensure_pool(state, name, report)


def ensure_pool(state: Path, name: str, report: Callable[[str], None]) -> Endpoint:
    """Return the endpoint of a pool; start its process if none runs, with the settings of its last `start_pool`.

    Raises `GlassflowError` when the process does not start, and for one of another version of this package.
    """
    folder = pool_folder(state.resolve(), name)
    make_pipeline_folder(folder)
    endpoint = read_endpoint(folder)
    if endpoint is None:
        with locked_file(folder / "launch.lock", "choose another folder for state"):
            # Another driver may have started it meanwhile.
            endpoint = read_endpoint(folder) or _start(folder, report)
    if endpoint.version != (own := Endpoint.model_fields["version"].default):
        raise GlassflowError(
            f"pool {name}: its process (pid {endpoint.pid}) is of version {endpoint.version}, not {own}; stop it with: "
            f"glassflow-dagster pool stop {name} --state {state}"
        )
    return endpoint


def stop_pool(state: Path, name: str) -> bool:
    """Stop the process of a pool; return whether one was running. Raises `GlassflowError` if drivers are attached."""
    endpoint = read_endpoint(pool_folder(state.resolve(), name))
    if endpoint is None:
        return False
    if pipelines := attached_pipelines(endpoint):
        raise GlassflowError(f"pool {name}: stop its pipelines first: {', '.join(pipelines)}")
    Background(endpoint.pid, endpoint.started, endpoint.port).end(STOP_SECONDS)
    return True


def more_memory(state: Path, name: str) -> str:
    """Return how the JVM of a pool gets more memory, as a part of a sentence."""
    try:
        has = _settings(pool_folder(state.resolve(), name)).get(DRIVER_MEMORY, DEFAULT_MEMORY)
    except GlassflowError:
        # The caller has another error to explain.
        has = "it has"
    return (
        f"give its pool more than {has}: stop the pool's pipelines and the pool (glassflow-dagster pool stop {name} "
        f"--state {state}), and start it with glassflow-dagster pool start {name} --state {state} "
        f"--conf {DRIVER_MEMORY}=2g"
    )


def attached_pipelines(endpoint: Endpoint) -> list[str]:
    """Return the pipelines whose drivers are attached to a pool; raises `GlassflowError` when it does not answer."""
    with connect(endpoint) as connection:
        return ask(connection, Request(token=endpoint.token, pipeline=None)).pipelines


@contextmanager
def connect(endpoint: Endpoint) -> Iterator[socket.socket]:
    """Connect to a pool for the block; raises `GlassflowError` when its process does not accept the connection."""
    try:
        connection = socket.create_connection(("127.0.0.1", endpoint.port), timeout=ANSWER_SECONDS)
    except OSError as error:
        raise GlassflowError(
            f"the process of the pool (pid {endpoint.pid}) does not answer: {error.strerror or error}; end it with "
            f"SIGKILL ({endpoint.pid}), then start the pipeline again"
        ) from error
    with connection:
        yield connection


def wait_for_end(endpoint: Endpoint) -> None:
    """Wait until the process of a pool that takes no drivers has ended; raise `GlassflowError` if it does not."""
    deadline = time.monotonic() + STOP_SECONDS
    while endpoint.is_alive():
        if time.monotonic() > deadline:
            raise GlassflowError(f"the process of the pool (pid {endpoint.pid}) does not end; end it with SIGKILL")
        time.sleep(_POLL_SECONDS)


def ask(connection: socket.socket, request: Request) -> Reply:
    """Send a request to a pool and return the reply; raises `GlassflowError` for an error, and without a reply."""
    try:
        send_line(connection, request)
        reply = receive_line(connection, Reply)
    except OSError as error:
        raise GlassflowError(
            f"the pool does not answer: {error}; end its process with SIGKILL, then start the pipeline again"
        ) from error
    if reply is None:
        raise GlassflowError("the pool has ended before it answered; see pool.log; start the pipeline again")
    if reply.error:
        raise GlassflowError(f"the pool refuses: {reply.error}")
    return reply


def _start(folder: Path, report: Callable[[str], None]) -> Endpoint:
    """Start the process of a pool, and wait until it accepts drivers."""
    log = folder / "pool.log"
    rotate_if_full(log)
    command = [*SERVER, "--folder", str(folder), "--log-file", str(log)]
    for key, value in _settings(folder).items():
        command += ["--conf", f"{key}={value}"]
    with log.open("ab") as output:
        log_start = os.fstat(output.fileno())
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=pool_environment(os.environ),
            start_new_session=True,
        )
    report(f"starting the pool {folder.name} (pid {process.pid}); its log is {log}")
    deadline = time.monotonic() + START_SECONDS
    while (endpoint := read_endpoint(folder)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            last_line = tail(log, log_start).rpartition("\n")[2]
            raise GlassflowError(
                f"pool {folder.name} did not start: {last_line or f'not up after {START_SECONDS:.0f} s'}; see {log}"
            )
        time.sleep(_POLL_SECONDS)
    return endpoint


def pool_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a pool inherits of the environment of the driver that starts it, which is one of its pipelines.

    Left out are its credentials, its addresses and its settings of Spark: other pipelines share the JVM.
    """
    return {
        name: value
        for name, value in environment.items()
        if name.upper() in _INHERITED or name.startswith(_INHERITED_BEGINS)
    }


def _settings(folder: Path) -> dict[str, str]:
    """Return the Spark settings of a pool; raises `GlassflowError` for a damaged file."""
    try:
        settings = json.loads((folder / _SETTINGS).read_text())
        return spark_settings(settings)
    except FileNotFoundError:
        return {}
    except ValueError:
        raise GlassflowError(
            f"{folder / _SETTINGS}: is damaged; set the settings of the pool again: glassflow-dagster pool start "
            f"{folder.name} --conf KEY=VALUE"
        ) from None
