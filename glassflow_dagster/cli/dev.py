"""`make dev`: runs the page and `dagster dev` on the embedded stack; Ctrl-C stops them, the drivers and the stack.

The topics of the demo's orders and users get their events, so that a first pipeline has something to read.

Dagster itself never stops a stream: `dagster dev` alone leaves drivers running.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from glassflow_dagster.control.state_folder import state_folder
from glassflow_dagster.control.status import stream_status
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.demo.orders import ORDERS_TOPIC, USERS_TOPIC, order_events, user_event_events
from glassflow_dagster.local.demo.produce import count_events, create_topic, send
from glassflow_dagster.local.stack import down, ports_beside_others, up
from glassflow_dagster.orchestration.page_link import PAGE_URL
from glassflow_dagster.orchestration.values import SHOW_VALUES

_DATA = Path(".glassflow")
_DAGSTER_PORT = int(os.environ.get("GLASSFLOW_DAGSTER_PORT", "3000"))
_UI_PORT = int(os.environ.get("GLASSFLOW_UI_PORT", "8081"))
# As in the demo, which finds the events in the topics and sends them no second time.
_SEED = 7
_UI_STOP_SECONDS = 10.0
# `dagster dev` ends its four processes within seconds of Ctrl-C.
_DAGSTER_STOP_SECONDS = 60.0
# Without `nux`, Dagster's page opens with a form that asks for an e-mail address.
_DAGSTER_SETTINGS = "nux: {enabled: false}\n"


def main() -> int:
    """Start the embedded stack, the page and `dagster dev`; at the end stop all, the stack last.

    Runs until Ctrl-C (returns 0) or until Dagster ends by itself (returns its exit code). Returns 1 after an error.
    """
    stopping = False

    def on_signal(_signal_number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    try:
        kafka_port, clickhouse_port = ports_beside_others(_DATA, _print_message)
        up(_DATA, kafka_port, clickhouse_port, _print_message)
        home = _DATA.absolute() / "dagster"
        home.mkdir(parents=True, exist_ok=True)
        settings = home / "dagster.yaml"
        if not settings.exists():
            settings.write_text(_DAGSTER_SETTINGS, encoding="utf-8")
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, on_signal)
        environment = {
            "GLASSFLOW_KAFKA_BROKERS": f"127.0.0.1:{kafka_port}",
            "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{clickhouse_port}",
            "DAGSTER_HOME": str(home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            SHOW_VALUES: "true",
            PAGE_URL: f"http://127.0.0.1:{_UI_PORT}",
            "GLASSFLOW_DAGSTER_URL": f"http://127.0.0.1:{_DAGSTER_PORT}",
            **os.environ,  # the caller's own settings win
        }
        fill_topics(f"127.0.0.1:{kafka_port}")
        page = subprocess.Popen(
            [sys.executable, "-m", "glassflow_dagster", "ui", "--port", str(_UI_PORT)],
            env=environment, start_new_session=True,
        )  # fmt: skip
        dagster = subprocess.Popen(
            [str(Path(sys.executable).with_name("dagster")), "dev", "--port", str(_DAGSTER_PORT), *sys.argv[1:]],
            env=environment,
            start_new_session=True,
        )
        while not stopping and dagster.poll() is None:
            time.sleep(0.2)
        _end_page(page)
        _end_dagster(dagster)
    except GlassflowError as error:
        _print_message(f"error: {error}")
        return 1
    else:
        return 0 if stopping else dagster.returncode
    finally:
        try:
            _stop_drivers()
        finally:
            down(_DATA, _print_message)


def fill_topics(brokers: str) -> None:
    """Send the demo's orders and users to their topics, unless these have events."""
    for topic, events in ((ORDERS_TOPIC, order_events), (USERS_TOPIC, user_event_events)):
        create_topic(brokers, topic)
        if not count_events(brokers, topic):
            count = send(brokers, topic, events(), _SEED, lambda _: None)
            _print_message(f"sent {count:,} events of the demo to topic {topic}")


def _end_page(page: "subprocess.Popen[bytes]") -> None:
    """Stop the process of the page, if it is running; the pipelines that it has started go on."""
    page.terminate()
    try:
        page.wait(_UI_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        page.kill()
        page.wait()


def _end_dagster(dagster: "subprocess.Popen[bytes]") -> None:
    """Interrupt Dagster's processes, if they are running; kill them when they do not end in time."""
    if dagster.poll() is not None:
        return
    _print_message("stopping Dagster ...")
    # To the whole process group, as a terminal's Ctrl-C: this ends runs in progress, too.
    os.killpg(dagster.pid, signal.SIGINT)
    try:
        dagster.wait(_DAGSTER_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(dagster.pid, signal.SIGKILL)
        dagster.wait()


def _stop_drivers() -> None:
    """Stop every driver that is meant to run on the state folder; an error with one does not keep the rest running."""
    state = state_folder()
    for folder in sorted(state.iterdir()) if state.is_dir() else ():
        try:
            stream = stream_status(state, folder.name)
            if stream.heartbeat is not None and stream.wanted:
                _print_message(f"stopping {folder.name}: {stop_driver(state, folder.name).value.replace('_', ' ')}")
        except GlassflowError as error:
            _print_message(f"{folder.name} could not be stopped: {error}")


def _print_message(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
