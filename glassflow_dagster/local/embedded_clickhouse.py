"""The ClickHouse of the local stack: the engine in the chdb wheel, with ClickHouse's own listeners, on loopback.

The wheel holds clickhouse-local, whose statement SYSTEM START LISTEN opens the server's own HTTP and native interfaces.
Run as a process of its own (`python -m glassflow_dagster.local.embedded_clickhouse --data DIR --port N`) because the
engine allows one process per data folder. SIGTERM ends it; a killed one loses nothing that it has confirmed. Everybody
is its user `default`, without a password, unless DIR/users.xml, in ClickHouse's own form, says who may do what.
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
import urllib.request
import uuid
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

_FAREWELL_SECONDS = 5  # that running statements are given after SIGTERM
_POLL_SECONDS = 0.05

# clickhouse-local chooses pools for one statement at a time: with two threads in the background a part that merges
# holds up the next one.
_CONFIG = """\
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
</clickhouse>
"""
# clickhouse-local lives as long as its statements: the last one never ends by itself. It is found by its words.
_LAST = (
    "SELECT sleepEachRow(1) AS serving FROM system.numbers "
    "SETTINGS function_sleep_max_microseconds_per_block = 0, max_block_size = 1 FORMAT Null"
)
_OTHERS = "SELECT count() FROM system.processes WHERE query NOT LIKE '%AS serving%'"
_END = "KILL QUERY WHERE query LIKE '%sleepEachRow(1) AS serving%' AND query NOT LIKE 'KILL%' ASYNC"


def main() -> None:
    """Serve until a signal; ends with 1 when the engine ends by itself, whose last line on stderr says why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the databases")
    parser.add_argument("--port", type=int, required=True, help="HTTP port on 127.0.0.1")
    parser.add_argument("--native-port", type=int, help="port of the native protocol (clickhouse-client) on 127.0.0.1")
    given = parser.parse_args()
    # Every thread of the engine inherits it: a signal then reaches the one that waits for it.
    endings = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    engine = threading.Thread(target=_serve, args=(given.data.absolute(), given.port, given.native_port), daemon=True)
    engine.start()
    # Not sigtimedwait: Python's names a signal that never came when the process was stopped and goes on (SIGCONT).
    while engine.is_alive() and not signal.sigpending() & endings:
        time.sleep(_POLL_SECONDS)
    asked = engine.is_alive()
    if asked:
        _end(given.port)
        engine.join(_FAREWELL_SECONDS)
    # The engine's own threads are not Python's to wait for. What it has confirmed is in files; its last words are not.
    ctypes.CDLL(None).fflush(None)
    os._exit(0 if asked else 1)


def _serve(data: Path, port: int, native_port: int | None) -> None:
    """Run the engine until its last statement is killed; it says on stderr why it cannot."""
    native = f"<tcp_port>{native_port}</tcp_port>" if native_port else ""
    users = data / "users.xml"
    named = f"<users_config>{users}</users_config>" if users.exists() else ""
    # clickhouse-local reads the config.xml of its working folder: one of its own, as another server may have the data.
    folder = data / "config" / str(port)
    folder.mkdir(parents=True, exist_ok=True)
    # The engine has nothing else that differs from one start to the next.
    run = uuid.uuid4()
    config = _CONFIG.format(http_port=port, native_port=native, users=named, run=run)
    (folder / "config.xml").write_text(config, encoding="utf-8")
    os.chdir(folder)
    listen = "SYSTEM START LISTEN HTTP;" + (" SYSTEM START LISTEN TCP;" if native_port else "")
    _engine().query(f"{listen} {_LAST}", "TabSeparated", path=str(data / "engine"))


def _engine() -> ModuleType:
    """Load the wheel's library alone: `import chdb` opens an embedded engine, which reads no configuration."""
    file = next(f for f in distribution("chdb-core").files or () if f.name.startswith("_chdb."))
    loader = importlib.machinery.ExtensionFileLoader("chdb._chdb", str(file.locate()))
    spec = importlib.util.spec_from_file_location("chdb._chdb", loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _end(port: int) -> None:
    """Let running statements finish, for some seconds, and end the last one."""
    deadline = time.monotonic() + _FAREWELL_SECONDS
    while _ask(port, _OTHERS).strip() not in {"0", ""} and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    _ask(port, _END)


def _ask(port: int, statement: str) -> str:
    """Put a statement to the server; gives nothing where it does not answer any more."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://127.0.0.1:{port}/", statement.encode(), timeout=_FAREWELL_SECONDS) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


if __name__ == "__main__":
    main()
