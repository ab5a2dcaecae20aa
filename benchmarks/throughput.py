"""Throughput and memory of the flights pipeline, with broker, ClickHouse and Dagster on the same machine.

Send the flights of 2013 six times with shifted dates (2.2 M events of 19 fields, a tenth of them twice). In each run
the pipeline reads all of them into an empty table. Measured are rows a second over the second half of the batches, the
peak memory of all processes together (proportional set size), and the rate of a bare consumer that only counts the same
topic, so that figures of different machines can be compared.

    make bench-throughput        or: python -m benchmarks.throughput --years 2 --runs 1
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from clickhouse_connect.driver.client import Client

from benchmarks import dagster_process, results
from benchmarks.console import say
from benchmarks.events import SEED
from benchmarks.pipelines import batches, run_to_the_end, second_half
from benchmarks.results import Figures, Runs
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.local.demo.events import FLIGHTS_TOPIC, flight_event_count, flight_events
from glassflow_dagster.local.demo.produce import count_events, create_topic, send

FIRST_YEAR = 2013
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
    """Run `dagster dev` for a stack while the block runs; yield its process."""
    environment = {
        **stack.environment,
        "GLASSFLOW_STATE": str(stack.state),
        "DAGSTER_HOME": str(stack.folder),
    }
    with dagster_process.running_dagster(environment) as (pid, _):
        yield pid


if __name__ == "__main__":
    main()
