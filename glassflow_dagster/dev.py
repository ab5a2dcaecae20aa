"""`make dev`: the embedded stack with `dagster dev`; Ctrl-C stops the drivers, then the stack.

Dagster itself never stops a stream: bare `dagster dev` leaves drivers running. This is the laptop's convenience.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from glassflow_dagster.driver.process import state_folder, status, stop
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.stack import down, up
from glassflow_dagster.orchestration.values import SHOW_VALUES

_DATA = Path(".glassflow")
_KAFKA_PORT = int(os.environ.get("GLASSFLOW_KAFKA_PORT", "9092"))
_CLICKHOUSE_PORT = int(os.environ.get("GLASSFLOW_CLICKHOUSE_PORT", "8123"))
# dagster dev ends its four processes within seconds of Ctrl-C.
_DAGSTER_STOP_SECONDS = 60.0


def main() -> int:
    """Run until Ctrl-C or until Dagster ends by itself; gives its exit code then."""
    stopping = False

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    try:
        up(_DATA, _KAFKA_PORT, _CLICKHOUSE_PORT, _say)
        home = _DATA.absolute() / "dagster"
        home.mkdir(parents=True, exist_ok=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        environment = {
            "GLASSFLOW_KAFKA_BROKERS": f"127.0.0.1:{_KAFKA_PORT}",
            "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{_CLICKHOUSE_PORT}",
            "DAGSTER_HOME": str(home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            SHOW_VALUES: "true",
            **os.environ,
        }
        dagster = subprocess.Popen(
            [str(Path(sys.executable).with_name("dagster")), "dev", *sys.argv[1:]],
            env=environment,
            start_new_session=True,
        )
        while not stopping and dagster.poll() is None:
            time.sleep(0.2)
        _end(dagster)
    except GlassflowError as error:
        _say(f"error: {error}")
        return 1
    else:
        return 0 if stopping else dagster.returncode
    finally:
        try:
            _stop_drivers()
        finally:
            down(_DATA, _say)


def _end(dagster: "subprocess.Popen[bytes]") -> None:
    if dagster.poll() is not None:
        return
    _say("stopping Dagster ...")
    # To its whole group, as a terminal's Ctrl-C would: runs in progress end, too.
    os.killpg(dagster.pid, signal.SIGINT)
    try:
        dagster.wait(_DAGSTER_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(dagster.pid, signal.SIGKILL)
        dagster.wait()


def _stop_drivers() -> None:
    state = state_folder()
    for folder in sorted(state.iterdir()) if state.is_dir() else ():
        try:
            found = status(state, folder.name)
            if found.heartbeat is not None and found.wanted:
                _say(f"stopping {folder.name}: {stop(state, folder.name).value.replace('_', ' ')}")
        except GlassflowError as error:
            _say(f"{folder.name} could not be stopped: {error}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
