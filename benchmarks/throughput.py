"""Throughput and memory of the flights pipeline, with broker, ClickHouse and Dagster on the same machine.

Send the flights of 2013 six times with shifted dates (2.2 M events of 19 fields, a tenth of them twice). In each run
the pipeline reads all of them into an empty table. Measured are rows a second over the second half of the batches, the
peak memory of all processes together (proportional set size), and the rate of a bare consumer that only counts the same
topic, so that figures of different machines can be compared.

    make bench-throughput        or: python -m benchmarks.throughput --years 2 --runs 1
"""

import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from clickhouse_connect.driver.client import Client

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import SEED
from benchmarks.pipelines import batches, run_to_the_end, second_half
from benchmarks.results import Figures, Runs
from benchmarks.stack import Stack, running_stack
from benchmarks.steady_state import end
from glassflow_dagster.demo.events import FLIGHTS_TOPIC, flight_event_count, flight_events
from glassflow_dagster.demo.produce import count_events, create_topic, send
from glassflow_dagster.local.ports import free_port

FIRST_YEAR = 2013
DAGSTER_START_SECONDS = 300.0
FLIGHTS = Path("pipelines/flights.yaml")


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("throughput")
    parser.add_argument("--years", type=int, default=6)
    arguments = parser.parse_args()
    runs = Runs()
    with running_stack() as stack:
        sent = send_flights(stack, arguments.years)
        with running_dagster(stack) as dagster:
            for _ in range(arguments.runs):
                runs.measure("flights", lambda: _measure(stack, sent, dagster))
    runs.write(arguments.results, "throughput", {"years": arguments.years, "events": sent, "seed": SEED})


def send_flights(stack: Stack, years: int) -> int:
    """Send the flights of `years` years; return the number of events."""
    create_topic(stack.brokers, FLIGHTS_TOPIC)
    say(f"sending {flight_event_count(years):,} events ...")
    events = flight_events(tuple(range(FIRST_YEAR, FIRST_YEAR + years)))
    return send(stack.brokers, FLIGHTS_TOPIC, events, SEED, lambda _: None)


def flights_definition(name: str) -> dict[str, Any]:
    """Return the flights pipeline's definition with another name and a table of its own."""
    definition: dict[str, Any] = yaml.safe_load(FLIGHTS.read_text(encoding="utf-8"))
    definition["pipeline_id"] = definition["sink"]["table"] = name
    return definition


def require_one_table(client: Client, name: str, tables: set[Any]) -> None:
    """Add a flights table's contents to `tables`, exit if tables differ, and drop the table."""
    table = f"analytics.`{name}`"
    tables.add(client.query(f"SELECT count(), sum(cityHash64(* EXCEPT ingested_at)) FROM {table}").result_rows[0])
    if len(tables) != 1:
        raise SystemExit(f"the tables differ: {tables}")
    client.command(f"DROP TABLE {table}")


def _measure(stack: Stack, sent: int, dagster: int) -> Figures:
    began = time.monotonic()
    if count_events(stack.brokers, FLIGHTS_TOPIC) != sent:
        raise SystemExit("the topic does not hold what was sent")
    bare = sent / (time.monotonic() - began)
    others = {"kafka": stack.kafka_pid, "clickhouse": stack.clickhouse_pid, "dagster": dagster}
    totals, memory = run_to_the_end(stack, FLIGHTS, others)
    client = stack.client()
    rate = second_half(batches(client, FLIGHTS.stem, "analytics"))
    rows = client.query("SELECT count() FROM analytics.flights").result_rows[0][0]
    if not rows == totals["written"] == sent - totals["duplicates"]:
        raise SystemExit(f"{sent:,} events were sent, {rows:,} rows came: {totals}")
    # The next run starts from an empty state.
    client.command("DROP DATABASE analytics")
    shutil.rmtree(stack.state)
    return {
        "events_per_second_second_half": rate,
        "bare_consumer_rows_per_second": bare,
        "ratio_to_bare_consumer": rate / bare,
        **{f"peak_memory_mib_{name}": size for name, size in memory.items()},
        "peak_memory_mib_together": sum(memory.values()),
    }


@contextmanager
def running_dagster(stack: Stack) -> Iterator[int]:
    """Run `dagster dev` in the background while the block runs; yield its process."""
    # SIGTERM, not SIGINT: commands that a shell starts in the background ignore SIGINT, and so do their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    port = free_port()
    environment = {
        **stack.environment,
        "GLASSFLOW_STATE": str(stack.state),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "DAGSTER_HOME": str(stack.folder),
    }
    command = [str(Path(sys.executable).with_name("dagster")), "dev", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_dagster(port)
        yield process.pid
    finally:
        end(process)


def await_dagster(port: int) -> None:
    """Wait until Dagster's web server answers; raise SystemExit after `DAGSTER_START_SECONDS`."""
    deadline = time.monotonic() + DAGSTER_START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit("dagster dev did not come up")


if __name__ == "__main__":
    main()
