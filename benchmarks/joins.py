"""What a join costs: throughput in steady state, and the time of a small batch with a small and with a large state.

Two topics hold seeded events of about 190 bytes, a tenth of them twice. The join deduplicates both sources and is an
inner join with the latest match, on the processing clock, with windows of an hour. First the right source alone fills
the state, one event per key; then left and right events come in equal numbers. Measured are input events a second over
the second half of those events, and the median time of batches of 2,000 records with a small and with the full state,
from Spark's batch time to the ledger row.

With `--skew` it compares evenly distributed keys with one key that has that share of all events: events a second, time
of a batch, memory of the driver. Then 1,000, 10,000 and 100,000 left events of one key wait for a match, and small
batches add ten more each: their time, the size of the checkpoint after them, and the time of the batch that brings the
matching right event.

    make bench-joins        or: python -m benchmarks.joins --keys 100000 --events 200000
    python -m benchmarks.joins --skew 0.9 --keys 200000
"""

import json
import random
import statistics
from collections.abc import Callable, Iterator
from itertools import count as counted
from pathlib import Path

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import SEED
from benchmarks.pipelines import (
    Batch,
    batches,
    run_to_the_end,
    running_pipeline,
    second_half,
    wait_until,
    write_definition,
)
from benchmarks.results import Figures, Runs
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.local.demo.produce import create_topic, send

SIDES = ("left", "right")
SMALL_STATE = 10_000
BATCH = 2000
BATCHES = 21
WAITING = (1000, 10_000, 100_000)
SKEWED_A_BATCH = 10
_DEADLINE = 900.0  # seconds; a million keys take two minutes


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("joins")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--skew", type=float, help="compare with this share of all events on one key")
    arguments = parser.parse_args()
    runs = Runs()
    with running_stack() as stack:
        bench = Bench(stack)
        for _ in range(arguments.runs):
            if arguments.skew is None:
                bench.measure(runs, arguments.keys, arguments.events)
            else:
                bench.compare(runs, arguments.keys, arguments.events, arguments.skew)
    parameters = {"keys": arguments.keys, "events": arguments.events, "batch": BATCH, "seed": SEED}
    if arguments.skew is None:
        runs.compare("large to small", f"{arguments.keys:,} keys", f"{SMALL_STATE:,} keys")
        runs.write(arguments.results, "joins", parameters)
    else:
        runs.write(arguments.results, "joins_skewed", {**parameters, "skew": arguments.skew})


class Bench:
    """The runs of the benchmark on one stack; each pipeline has its own topics, named after it."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._client = stack, stack.client()
        self._draw = random.Random(SEED)
        self._names = (f"j{number}" for number in counted())

    def measure(self, runs: Runs, keys: int, events: int) -> None:
        """Run each case once: steady state, a small state, a large state."""
        large = next(self._names)
        runs.measure("both sides deduplicated, joined", lambda: self._steady(large, keys, events, skew=0))
        runs.measure(f"{SMALL_STATE:,} keys", self._small_batches)
        runs.measure(f"{keys:,} keys", lambda: self._batches(large, self._uniform_keys(keys)))

    def compare(self, runs: Runs, keys: int, events: int, skew: float) -> None:
        """Run even keys, skewed keys, and one key with many waiting events, once each."""
        runs.measure("even keys", lambda: self._steady(next(self._names), keys, events, skew=0))
        runs.measure(f"{skew:.0%} on one key", lambda: self._steady(next(self._names), keys, events, skew))
        for waiting in WAITING:
            runs.measure(
                f"{waiting:,} waiting of one key",
                lambda waiting=waiting: self._with_waiting_events(next(self._names), waiting),
            )

    def _steady(self, name: str, keys: int, events: int, skew: float) -> Figures:
        """Fill the state, then read events of both sources; `skew` is the share of events with key 0."""
        self._make(name)
        say(f"{name}: filling the state with {keys:,} keys ...")
        self._send(f"{name}-right", (self._event("r", number, number) for number in range(keys)))
        self._run(name)
        before = len(self._ledger(name))
        say(f"{name}: sending {events:,} events ...")
        self._send(f"{name}-left", self._with_duplicates("l", events // 2, keys, skew))
        self._send(f"{name}-right", self._with_duplicates("R", events // 2, keys, skew))
        totals, memory = self._run(name)
        done = self._ledger(name)[before:]
        return {
            "events_per_second_second_half": second_half(done),
            "milliseconds_a_batch": statistics.median(batch.milliseconds for batch in done),
            "driver_memory_mib": memory["driver"],
            "rows_written": totals["written"],
        }

    def _with_waiting_events(self, name: str, count: int) -> Figures:
        """Measure small batches while `count` left events of key 0 wait, then the batch with their right event."""
        self._make(name)
        say(f"{name}: {count:,} events of one key wait ...")
        self._send(f"{name}-left", (self._event("l", number, 0) for number in range(count)))
        self._run(name)
        figures = self._batches(name, self._skewed_keys)
        files = (self._stack.state / f"{name}-join").rglob("*")
        checkpoint = sum(file.stat().st_size for file in files if file.is_file())
        self._send(f"{name}-right", iter([self._event("r", 0, 0)]))
        totals, memory = self._run(name)
        return {
            **figures,
            "checkpoint_mib": checkpoint / 2**20,
            "rows_when_the_right_event_came": totals["written"],
            "milliseconds_of_that_batch": self._ledger(name)[-1].milliseconds,
            "driver_memory_mib_then": memory["driver"],
        }

    def _small_batches(self) -> Figures:
        name = next(self._names)
        self._make(name)
        self._send(f"{name}-right", (self._event("r", number, number) for number in range(SMALL_STATE)))
        self._run(name)
        return self._batches(name, self._uniform_keys(SMALL_STATE))

    def _uniform_keys(self, keys: int) -> Callable[[str, int], int]:
        return lambda _side, _number: self._draw.randrange(keys)

    def _skewed_keys(self, side: str, number: int) -> int:
        """Return key 0 for the first left events of a batch, and a random key for every other event."""
        return 0 if side == "left" and number < SKEWED_A_BATCH else self._draw.randrange(1, SMALL_STATE)

    def _batches(self, name: str, key: Callable[[str, int], int]) -> Figures:
        """Send small batches one by one to a running pipeline; return the median of their time.

        key: returns an event's key from its source ("left" or "right") and its number in the batch.
        """
        done = len(self._ledger(name))
        with running_pipeline(self._stack, self._file(name)) as driver:
            for number in range(BATCHES):
                for side in SIDES:
                    half = [self._event(f"b{number}{side}", n, key(side, n)) for n in range(BATCH // 2)]
                    self._send(f"{name}-{side}", iter(half))
                sent = (number + 1) * BATCH
                wait_until(lambda sent=sent: self._read_since(name, done) >= sent, driver, _DEADLINE, "all was read")
        found = self._ledger(name)[done:]
        # The JVM warms up during the first half.
        return {f"milliseconds_of_{BATCH}_records": statistics.median(b.milliseconds for b in found[len(found) // 2 :])}

    def _read_since(self, name: str, done: int) -> int:
        return sum(batch.read for batch in self._ledger(name)[done:])

    def _ledger(self, name: str) -> list[Batch]:
        return batches(self._client, f"{name}-join")

    def _run(self, name: str) -> tuple[dict[str, int], dict[str, float]]:
        return run_to_the_end(self._stack, self._file(name))

    def _file(self, name: str) -> Path:
        return self._stack.folder / f"{name}-join.yaml"

    def _send(self, topic: str, events: Iterator[bytes]) -> None:
        send(self._stack.brokers, topic, events, SEED, lambda _: None)

    def _with_duplicates(self, prefix: str, count: int, keys: int, skew: float) -> Iterator[bytes]:
        """Yield events with random keys, a share of `skew` with key 0; every tenth event comes twice."""
        for number in range(count * 10 // 11):
            key = 0 if self._draw.random() < skew else self._draw.randrange(keys)
            event = self._event(prefix, number, key)
            yield event
            if number % 10 == 0:
                yield event

    def _event(self, prefix: str, number: int, key: int) -> bytes:
        return json.dumps({
            "id": f"{prefix}-{number:012}", "user": f"user-{key:010}", "name": f"Customer {key:010}",
            "email": f"customer.{key:010}@example.test", "amount": number % 15, "price": number % 10_000 / 100,
            "created_at": "2026-01-31T00:00:00Z",
        }).encode()  # fmt: skip

    def _make(self, name: str) -> None:
        """Create the topics and write the definition."""
        fields = [{"name": n, "type": "string"} for n in ("id", "user", "name", "email", "created_at")]
        fields += [{"name": "amount", "type": "int"}, {"name": "price", "type": "float"}]
        for side in SIDES:
            create_topic(self._stack.brokers, f"{name}-{side}")
        columns = {"id": "String", "user": "String", "amount": "Int32", "price": "Float64", "name": "String"}
        definition = {
            "version": "v3",
            "pipeline_id": f"{name}-join",
            "sources": [
                {"type": "kafka", "source_id": side, "connection_params": {"brokers": [self._stack.brokers]},
                 "topic": f"{name}-{side}", "schema_fields": fields} for side in SIDES
            ],
            "transforms": [
                {"type": "dedup", "source_id": side, "config": {"key": "id", "time_window": "1h"}} for side in SIDES
            ],
            "join": {
                "enabled": True,
                **{f"{side}_source": {"source_id": side, "key": "user", "time_window": "1h"} for side in SIDES},
                "output_fields": [
                    *({"source_id": "left", "name": n} for n in ("id", "user", "amount", "price")),
                    *({"source_id": "right", "name": n} for n in ("name", "email")),
                ],
            },
            "sink": {
                "type": "clickhouse",
                "connection_params": {"host": "127.0.0.1", "port": self._stack.clickhouse_port, "database": "default",
                                      "username": "default", "password": ""},
                "table": f"{name}_joined", "max_batch_size": 50_000, "max_delay_time": "200ms",
                "create_table": {"order_by": "id"},
                "mapping": [{"name": n, "column_name": n, "column_type": t}
                            for n, t in {**columns, "email": "String"}.items()],
            },
        }  # fmt: skip
        write_definition(self._stack.folder, definition)


if __name__ == "__main__":
    main()
