"""End-to-end latency, from sending an event to a visible row, at several rates and with many keys in the state.

A separate process sends events of 190 bytes at a constant rate, a tenth of them with a key sent before. Each new event
carries the time at which it was handed to the Kafka client. Every 20 ms the table's row count is polled; when it has
changed, a query counts the rows of each 5 ms of sending time, and rows that are new since the previous poll are seen at
the time of the response. So a latency is overestimated by up to one poll interval and 5 ms, and never underestimated.
The first seconds at each rate are left out, and the first minute at the first rate: the JVM is slow to compile the code
that runs once a batch. At the end every new key must have exactly one row.

Each run starts a new driver. A large state is filled once and grows a little from run to run.

    make bench-latency        or: python -m benchmarks.latency --rates 200 2000 --seconds 20 --runs 1
"""

import multiprocessing
import random
import statistics
import subprocess
import time
from collections import Counter
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection

from clickhouse_connect.driver.client import Client

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import DUPLICATES, SEED, Sender, can_stay, event, fill, key
from benchmarks.pipelines import (
    batches,
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
from benchmarks.steady_state import Consumer, Expected, Run, new_task
from glassflow_dagster.local.demo.produce import create_topic

RATES = (200, 2000, 10_000)
POLL_SECONDS = 0.02
BUCKET_MICROSECONDS = 5000
# How often the sender checks what is due: far below the measured latencies.
TICK_SECONDS = 0.002
# How long the Kafka client may wait to fill a batch: its own default.
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
    arguments = parser.parse_args()
    runs = Runs()
    sink = {"max_batch_size": arguments.max_batch_size, "max_delay_time": arguments.max_delay_time}
    planned = plan(arguments.rates, arguments.seconds)
    events = sum(rate * seconds for rate, seconds in planned)
    with running_stack() as stack:
        bench = None
        for number in range(arguments.runs):
            if bench is None or not can_stay(arguments.keys, events):
                bench = Bench(stack, f"latency{number}", arguments.keys, sink)
                bench.fill()
            bench.run(runs, planned, arguments.seconds)
    parameters = {"keys": arguments.keys, "seconds": arguments.seconds, **sink, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(arguments.results, f"latency_{arguments.keys}", parameters)


def plan(rates: list[int], seconds: float) -> list[tuple[int, float]]:
    """Return each rate with the seconds to send at it, including the warm-up that is left out."""
    warm = [FIRST_WARM_SECONDS, *[WARM_SECONDS] * (len(rates) - 1)]
    return [(rate, left_out + seconds) for rate, left_out in zip(rates, warm, strict=True)]


class Bench:
    """One pipeline with its state, measured at each rate.

    state: where the definition puts the checkpoint; None for the stack's folder.
    """

    def __init__(
        self, stack: Stack, pipeline: str, keys: int, sink: dict[str, object], state: dict[str, str] | None = None
    ) -> None:
        self._stack, self._pipeline, self._next = stack, pipeline, keys
        self._client = stack.client()
        # Ordered by time, so that a poll reads only rows sent since the measurement began.
        definition = dedup_definition(pipeline, pipeline, **sink, create_table={"order_by": "sent_at"})
        if state:
            definition["state"] = state
        self._definition = write_definition(stack.folder, definition)

    def fill(self) -> None:
        """Create the topic and fill the state with the keys."""
        create_topic(self._stack.brokers, self._pipeline)
        say(f"{self._pipeline}: filling the state with {self._next:,} keys ...")
        fill(self._stack.brokers, self._pipeline, range(self._next))
        run_to_the_end(self._stack, self._definition)

    def run(self, runs: Runs, planned: list[tuple[int, float]], seconds: float, case: str = "") -> None:
        """Measure each rate on one new driver, over the last `seconds` of its sending time.

        case: the beginning of the cases' names.
        """
        with self._running() as driver:
            self._wait_for_the_first(driver)
            for rate, sent in planned:
                counted = f"{case}{rate:,} events/s"
                runs.measure(counted, lambda rate=rate, sent=sent: self._measure(driver, rate, sent, seconds))

    def _running(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return running_pipeline(self._stack, self._definition)

    def _wait_for_the_first(self, driver: subprocess.Popen[bytes]) -> None:
        fill(self._stack.brokers, self._pipeline, [self._next])
        self._next += 1
        wait_until(lambda: self._count() == self._next, driver, START_SECONDS, "the first row came")

    def _measure(self, driver: subprocess.Popen[bytes], rate: int, sending_for: float, seconds: float) -> Figures:
        """Send at a rate, wait for the last row, and return the figures of the last `seconds`."""
        receiver, reporter = multiprocessing.Pipe(duplex=False)
        sending = (reporter, (self._stack.brokers, self._pipeline), self._next, rate, sending_for)
        began, used = time.time_ns(), cpu_seconds(driver.pid)
        sender = multiprocessing.get_context("spawn").Process(target=send_evenly, args=sending)
        sender.start()
        watch = Watch(self._client, self._pipeline, began // 1000)
        deadline = None
        sent = 0
        while deadline is None or (self._count() < self._next + sent and time.monotonic() < deadline):
            watch.poll_rows()
            if deadline is None and receiver.poll():
                sent, reached = receiver.recv()
                deadline = time.monotonic() + LAST_ROW_SECONDS
            elif sender.exitcode:
                raise SystemExit("the sender failed")
            time.sleep(POLL_SECONDS)
        sender.join()
        watch.poll_rows()
        self._next += sent
        require_one_row_each(self._client, self._pipeline, self._next)
        used, passed = cpu_seconds(driver.pid) - used, (time.time_ns() - began) / 1e9
        return {
            **watch.figures(began // 1000 + int((sending_for - seconds) * MICROSECONDS)),
            "keys": self._next,
            "events_per_second_sent": reached,
            "driver_cpu_cores": used / passed,
            **self._batch_figures(began // 1_000_000, used, passed),
        }

    def _batch_figures(self, began_ms: int, used: float, passed: float) -> Figures:
        """Return how many batches there were since `began_ms`, and what each cost of the CPU seconds `used`."""
        done = [batch for batch in batches(self._client, self._pipeline) if batch.begun_ms >= began_ms]
        return {"batches_per_second": len(done) / passed, "driver_cpu_ms_per_batch": used / len(done) * 1000}

    def _count(self) -> int:
        return int(self._client.query(f"SELECT count() FROM {self._pipeline}").result_rows[0][0])


class PeerBench(Bench):
    """Another program on such a topic; it has no ledger, and reads the keys before the first event on its own."""

    def __init__(self, stack: Stack, consumer: Consumer, pipeline: str, keys: int) -> None:
        super().__init__(stack, pipeline, keys, {})
        self._consumer = consumer

    def fill(self) -> None:
        """Create the topic and put the keys into it."""
        create_topic(self._stack.brokers, self._pipeline)
        fill(self._stack.brokers, self._pipeline, range(self._next))

    def _running(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        task = new_task(self._stack, self._pipeline, self._pipeline)
        return Run(self._consumer, self._stack, task, Expected(self._next, self._next, self._next)).running()

    def _batch_figures(self, _began_ms: int, _used: float, _passed: float) -> Figures:
        return {}


class Watch:
    """Polls a table for new rows; each `poll_rows` takes the rows that are new as visible now."""

    def __init__(self, client: Client, table: str, since: int) -> None:
        self._client, self._table, self._since = client, table, since
        self._rows = -1
        self._seen: Counter[int] = Counter()
        self._last = time.monotonic()
        # (bucket, latency in microseconds) -> rows
        self._latencies: Counter[tuple[int, int]] = Counter()
        self._gaps: list[float] = []

    def poll_rows(self) -> None:
        """Read the row count; when it has changed, record the latencies of the new rows."""
        rows = self._client.query(f"SELECT count() FROM {self._table}").result_rows[0][0]
        if rows != self._rows:
            self._rows = rows
            self._count_new()
        now = time.monotonic()
        self._gaps.append(now - self._last)
        self._last = now

    def _count_new(self) -> None:
        rows_query = (
            f"SELECT intDiv(sent_at, {BUCKET_MICROSECONDS}) AS bucket, count() FROM {self._table} "
            f"WHERE sent_at >= {self._since} GROUP BY bucket"
        )
        found = self._client.query(rows_query).result_rows
        seen_at = time.time_ns() // 1000
        for bucket, rows in found:
            if new := rows - self._seen[bucket]:
                self._latencies[bucket, seen_at - bucket * BUCKET_MICROSECONDS] += new
                self._seen[bucket] = rows

    def figures(self, since: int) -> dict[str, float]:
        """Return the latency percentiles of rows sent since `since`, in milliseconds, and the median poll interval."""
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
    """Send events at a rate to (brokers, topic), numbering new ones from `first`; report their number and the rate."""
    sender = Sender(*address, LINGER_MS)
    draw = random.Random(SEED)
    following, sent, began = first, 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        while sent < rate * passed:
            repeated = draw.random() < DUPLICATES
            number = draw.randrange(following) if repeated else following
            sender.send(key(number).encode(), event(number, time.time_ns() // 1000))
            following += not repeated
            sent += 1
        time.sleep(TICK_SECONDS)
    took = time.monotonic() - began
    sender.finish()
    report.send((following - first, sent / took))


if __name__ == "__main__":
    main()
