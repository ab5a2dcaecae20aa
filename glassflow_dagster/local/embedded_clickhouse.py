"""The ClickHouse server of the local stack: the engine in the chdb wheel, with ClickHouse's listeners, on loopback.

The wheel contains clickhouse-local, whose statement SYSTEM START LISTEN opens the HTTP and native interfaces of a
server. It runs as its own process (`python -m glassflow_dagster.local.embedded_clickhouse --data DIR --port N`) because
the engine allows one process per data folder. SIGTERM ends it; a kill loses no confirmed insert. All clients are the
user `default` without a password, unless DIR/users.xml (ClickHouse's users configuration) defines others.
"""

import argparse
import ctypes
import importlib.machinery
import importlib.util
import os
import signal
import threading
import time
import urllib.error
import uuid
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

from glassflow_dagster.runtime import direct

_SHUTDOWN_SECONDS = 5  # for running statements to finish after SIGTERM
_POLL_SECONDS = 0.05

# clickhouse-local's default pools are sized for one statement at a time: with two background threads, one merge delays
# the next.
CONFIG = """\
<clickhouse>
  <logger><console>true</console></logger>
  <log-level>error</log-level>
  <display_name>glassflow-dagster {run}</display_name>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http_port}</http_port>
  {native_port}
  {users}
  <background_schedule_pool_size>16</background_schedule_pool_size>
  <background_pool_size>4</background_pool_size>
  <background_fetches_pool_size>4</background_fetches_pool_size>
  <background_common_pool_size>4</background_common_pool_size>
  <background_message_broker_schedule_pool_size>4</background_message_broker_schedule_pool_size>
</clickhouse>
"""
# clickhouse-local ends with its last statement, so this one runs forever. The column `serving` identifies it.
KEEP_ALIVE = (
    "SELECT sleepEachRow(1) AS serving FROM system.numbers "
    "SETTINGS function_sleep_max_microseconds_per_block = 0, max_block_size = 1 FORMAT Null"
)
_COUNT_RUNNING = "SELECT count() FROM system.processes WHERE query NOT LIKE '%AS serving%'"
_KILL_KEEP_ALIVE = "KILL QUERY WHERE query LIKE '%sleepEachRow(1) AS serving%' AND query NOT LIKE 'KILL%' ASYNC"


def main() -> None:
    """Serve until SIGTERM or SIGINT; exit with 1 when the engine ends by itself, after it printed why to stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the databases")
    parser.add_argument("--port", type=int, required=True, help="HTTP port on 127.0.0.1")
    parser.add_argument("--native-port", type=int, help="port of the native protocol (clickhouse-client) on 127.0.0.1")
    options = parser.parse_args()
    # Blocked in all threads, which inherit the mask: a signal stays pending until the loop below sees it.
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    engine = threading.Thread(
        target=_serve, args=(options.data.absolute(), options.port, options.native_port), daemon=True
    )
    engine.start()
    # Not sigtimedwait: in Python it returns a signal that was never sent after the process is stopped and continued.
    while engine.is_alive() and not signal.sigpending() & stop_signals:
        time.sleep(_POLL_SECONDS)
    is_requested = engine.is_alive()
    if is_requested:
        _stop_engine(options.port)
        engine.join(_SHUTDOWN_SECONDS)
    # Python cannot join the engine's own threads. Confirmed inserts are in files; buffered log lines are flushed here.
    ctypes.CDLL(None).fflush(None)
    os._exit(0 if is_requested else 1)


def _serve(data: Path, port: int, native_port: int | None) -> None:
    """Run the engine until its keep-alive statement is killed; it prints its errors to stderr."""
    native = f"<tcp_port>{native_port}</tcp_port>" if native_port else ""
    users_file = data / "users.xml"
    users_config = f"<users_config>{users_file}</users_config>" if users_file.exists() else ""
    # clickhouse-local reads config.xml in its working folder. The folder is named by the port, as the start of a second
    # server on the same data, which fails, must not overwrite the first one's file.
    folder = data / "config" / str(port)
    folder.mkdir(parents=True, exist_ok=True)
    # Part of the display name: nothing else in the engine tells one start from the next.
    start_id = uuid.uuid4()
    config = CONFIG.format(http_port=port, native_port=native, users=users_config, run=start_id)
    (folder / "config.xml").write_text(config, encoding="utf-8")
    os.chdir(folder)
    listen = "SYSTEM START LISTEN HTTP;" + (" SYSTEM START LISTEN TCP;" if native_port else "")
    # "TabSeparated": the output format, of which nothing is read.
    load_engine().query(f"{listen} {KEEP_ALIVE}", "TabSeparated", path=str(data / "engine"))


def load_engine() -> ModuleType:
    """Load the wheel's extension module directly: `import chdb` starts an engine that reads no configuration."""
    file = next(path for path in distribution("chdb-core").files or () if path.name.startswith("_chdb."))
    loader = importlib.machinery.ExtensionFileLoader("chdb._chdb", str(file.locate()))
    spec = importlib.util.spec_from_file_location("chdb._chdb", loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _stop_engine(port: int) -> None:
    """Wait some seconds for running statements, then kill the keep-alive statement, which ends the engine."""
    deadline = time.monotonic() + _SHUTDOWN_SECONDS
    # "": the server does not answer any more.
    while _query(port, _COUNT_RUNNING).strip() not in {"0", ""} and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    _query(port, _KILL_KEEP_ALIVE)


def _query(port: int, statement: str) -> str:
    """Run a statement over HTTP and return the response; empty when the server does not answer."""
    try:
        with direct.opener.open(f"http://127.0.0.1:{port}/", statement.encode(), timeout=_SHUTDOWN_SECONDS) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


if __name__ == "__main__":
    main()
