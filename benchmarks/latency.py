"""How long an event takes from its sending to a row that can be read, at several rates, with many keys in the state.

A process of its own sends events of 190 bytes, evenly, a tenth of them with a key sent before; each new one carries
the time of the call that hands it to Kafka's client. Beside it the table's count is asked for every 20 ms, and when
it has changed, how many rows there are of each 5 ms of sending: those that have come since the last look were seen at
the moment of the answer. A latency so counts too much, by the time since the last look and 5 ms, never too little.
The first seconds at each rate are left out, and a minute at the first one, in which Java warms up: what there is for
each batch, and not for each record, it compiles late. At the end every new key must have its one row.

Each run is a driver of its own. A large state is filled once, and grows a little from run to run.

    make bench-latency        or: python -m benchmarks.latency --rates 200 2000 --seconds 20 --runs 1
"""

import multiprocessing
import random
import statistics
import subprocess
import time
from collections import Counter
from multiprocessing.connection import Connection

from clickhouse_connect.driver.client import Client

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import DUPLICATES, SEED, Sender, can_stay, event, fill, key
from benchmarks.pipelines import (
    dedup_definition,
    require_one_row_each,
    run_to_the_end,
    running_pipeline,
    wait_until,
    write_definition,
)
from benchmarks.processes import cpu_seconds
from benchmarks.results import Figures, Runs, percentile
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.demo.produce import create_topic

RATES = (200, 2000, 10_000)
POLL_SECONDS = 0.02
BUCKET_MICROSECONDS = 5000
# How often the sender looks at the clock: far below what is measured.
TICK_SECONDS = 0.002
# What Kafka's client may wait for company: its own default.
LINGER_MS = 5
WARM_SECONDS = 10.0
FIRST_WARM_SECONDS = 60.0
MICROSECONDS = 1_000_000
START_SECONDS = 180.0
LAST_ROW_SECONDS = 120.0


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("latency")
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="events a second")
    parser.add_argument("--keys", type=int, default=100_000, help="in the state before the first event")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured at each rate")
    parser.add_argument("--max-batch-size", type=int, default=50_000)
    parser.add_argument("--max-delay-time", default="100ms")
    options = parser.parse_args()
    runs = Runs()
    sink = {"max_batch_size": options.max_batch_size, "max_delay_time": options.max_delay_time}
    planned = plan(options.rates, options.seconds)
    events = sum(rate * seconds for rate, seconds in planned)
    with running_stack() as stack:
        bench = None
        for number in range(options.runs):
            if bench is None or not can_stay(options.keys, events):
                bench = Bench(stack, f"latency{number}", options.keys, sink)
                bench.fill()
            bench.run(runs, planned, options.seconds)
    parameters = {"keys": options.keys, "seconds": options.seconds, **sink, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(options.results, f"latency_{options.keys}", parameters)


def plan(rates: list[int], seconds: float) -> list[tuple[int, float]]:
    """Return each rate with the seconds for which it is sent: those that are measured, and the warmup before them."""
    warmup_seconds = [FIRST_WARM_SECONDS, *[WARM_SECONDS] * (len(rates) - 1)]
    return [(rate, warmup + seconds) for rate, warmup in zip(rates, warmup_seconds, strict=True)]


class Bench:
    """One pipeline with its state, at one rate after the other."""

    def __init__(self, stack: Stack, pipeline: str, keys: int, sink: dict[str, object]) -> None:
        self._stack, self._pipeline, self._next = stack, pipeline, keys
        self._client = stack.client()
        # The order by time lets a look skip what was sent before.
        definition = dedup_definition(pipeline, pipeline, **sink, create_table={"order_by": "sent_at"})
        self._definition = write_definition(stack.folder, definition)

    def fill(self) -> None:
        """Create the topic, and read the keys into the state."""
        create_topic(self._stack.brokers, self._pipeline)
        say(f"{self._pipeline}: filling the state with {self._next:,} keys ...")
        fill(self._stack.brokers, self._pipeline, range(self._next))
        run_to_the_end(self._stack, self._definition)

    def run(self, runs: Runs, planned: list[tuple[int, float]], seconds: float) -> None:
        """Measure each rate in turn on a new driver: the last `seconds` of each."""
        with running_pipeline(self._stack, self._definition) as driver:
            self._wait_for_the_first(driver)
            for rate, sending_for in planned:
                case = f"{rate:,} events/s"
                runs.measure(
                    case, lambda rate=rate, sending_for=sending_for: self._measure(driver, rate, sending_for, seconds)
                )

    def _wait_for_the_first(self, driver: subprocess.Popen[bytes]) -> None:
        """Send one event and wait for its row: the driver is then running."""
        fill(self._stack.brokers, self._pipeline, [self._next])
        self._next += 1
        wait_until(lambda: self._count() == self._next, driver, START_SECONDS, "the first row came")

    def _measure(self, driver: subprocess.Popen[bytes], rate: int, sending_for: float, seconds: float) -> Figures:
        """Send events at a rate for `sending_for` seconds, and measure the last `seconds` of them.

        Another process sends them, and reports the number of new events and the actual rate.
        """
        receiver, reporter = multiprocessing.Pipe(duplex=False)
        arguments = (reporter, (self._stack.brokers, self._pipeline), self._next, rate, sending_for)
        began, cpu = time.time_ns(), cpu_seconds(driver.pid)
        sender = multiprocessing.get_context("spawn").Process(target=send_evenly, args=arguments)
        sender.start()
        watch = Watch(self._client, self._pipeline, began // 1000)
        deadline = None
        sent = 0
        while deadline is None or (self._count() < self._next + sent and time.monotonic() < deadline):
            watch.look()
            if deadline is None and receiver.poll():
                sent, actual_rate = receiver.recv()
                deadline = time.monotonic() + LAST_ROW_SECONDS
            elif sender.exitcode:
                raise SystemExit("the sender failed")
            time.sleep(POLL_SECONDS)
        sender.join()
        watch.look()
        self._next += sent
        require_one_row_each(self._client, self._pipeline, self._next)
        cpu, passed = cpu_seconds(driver.pid) - cpu, (time.time_ns() - began) / 1e9
        batches = self._batches_since(began)
        return {
            **watch.figures(began // 1000 + int((sending_for - seconds) * MICROSECONDS)),
            "keys": self._next,
            "events_per_second_sent": actual_rate,
            "driver_cpu_cores": cpu / passed,
            "batches_per_second": batches / passed,
            "driver_cpu_ms_per_batch": cpu / batches * 1000,
        }

    def _batches_since(self, began: int) -> int:
        """Return the number of batches since a moment, nanoseconds since 1970, by the ledger."""
        counted = self._client.query(
            "SELECT count() FROM glassflow_ledger WHERE pipeline_id = {pipeline:String} "
            "AND toUnixTimestamp64Milli(batch_time) >= {began:Int64}",
            parameters={"pipeline": self._pipeline, "began": began // 1_000_000},
        )
        return int(counted.result_rows[0][0])

    def _count(self) -> int:
        return int(self._client.query(f"SELECT count() FROM {self._pipeline}").result_rows[0][0])


class Watch:
    """Sees rows come: `look` counts those that came since the last look as seen now."""

    def __init__(self, client: Client, table: str, since: int) -> None:
        self._client, self._table, self._since = client, table, since
        self._rows = -1
        self._seen: Counter[int] = Counter()
        self._last = time.monotonic()
        # (bucket, latency in microseconds) -> rows
        self._latencies: Counter[tuple[int, int]] = Counter()
        self._gaps: list[float] = []

    def look(self) -> None:
        """Query the number of rows, and count the new rows when it has changed."""
        rows = self._client.query(f"SELECT count() FROM {self._table}").result_rows[0][0]
        if rows != self._rows:
            self._rows = rows
            self._count_new()
        now = time.monotonic()
        self._gaps.append(now - self._last)
        self._last = now

    def _count_new(self) -> None:
        """Count the rows that are new since the last look, by the time at which they were sent and their latency."""
        query = (
            f"SELECT intDiv(sent_at, {BUCKET_MICROSECONDS}) AS bucket, count() FROM {self._table} "
            f"WHERE sent_at >= {self._since} GROUP BY bucket"
        )
        result_rows = self._client.query(query).result_rows
        seen_at = time.time_ns() // 1000
        for bucket, rows in result_rows:
            if new := rows - self._seen[bucket]:
                self._latencies[bucket, seen_at - bucket * BUCKET_MICROSECONDS] += new
                self._seen[bucket] = rows

    def figures(self, since: int) -> dict[str, float]:
        """Return latencies of the events sent from `since` on, and the median time between looks, in milliseconds."""
        counted: Counter[float] = Counter()
        for (bucket, microseconds), rows in self._latencies.items():
            if bucket * BUCKET_MICROSECONDS >= since:
                counted[microseconds / 1000] += rows
        return {
            **{f"p{share}_ms": percentile(counted, share / 100) for share in (50, 95, 99)},
            "max_ms": max(counted),
            "rows": sum(counted.values()),
            "ms_between_looks": statistics.median(self._gaps) * 1000,
        }


def send_evenly(report: Connection, address: tuple[str, str], first: int, rate: int, seconds: float) -> None:
    """Send events at a rate to (brokers, topic), new ones numbered from `first`.

    report: receives the number of new events and the actual rate after the last event.
    """
    sender = Sender(*address, LINGER_MS)
    draw = random.Random(SEED)
    next_number, sent, began = first, 0, time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        while sent < rate * elapsed:
            repeated = draw.random() < DUPLICATES
            number = draw.randrange(next_number) if repeated else next_number
            sender.send(key(number).encode(), event(number, time.time_ns() // 1000))
            next_number += not repeated
            sent += 1
        time.sleep(TICK_SECONDS)
    took = time.monotonic() - began
    sender.finish()
    report.send((next_number - first, sent / took))


if __name__ == "__main__":
    main()
