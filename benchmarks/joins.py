"""What a join costs: throughput in steady state, and a small batch beside a small and a large state.

Two topics of seeded events of some 190 bytes, a tenth of them twice; both sides are deduplicated; inner, latest match,
processing clock, windows of an hour. First the right side alone fills the state, one event for each of so many keys;
then left and right events come in equal numbers. Prints one JSON object: rows a second over the second half of that,
and the median time of batches of 2,000 records with a small and with the full state, from Spark's batch time to the
ledger's row.

With `--skew` it compares keys that come equally often with one key that has that share of all events: rows a second,
time of a batch, memory of the driver. Then, of one key, 1,000, 10,000 and 100,000 left events wait, and small batches
bring ten more each: their time, how large the checkpoint is after them, and how long the batch takes that brings the
right event for which all of them wait.

    make bench-joins        or: python -m benchmarks.joins --keys 100000 --events 200000
    python -m benchmarks.joins --skew 0.9 --keys 200000
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import yaml

from benchmarks.throughput import SEED, Memory, say
from glassflow_dagster.demo.produce import create_topic, send
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up

SIDES = ("left", "right")
SMALL_STATE = 10_000
BATCH = 2000
BATCHES = 21
HELD = (1000, 10_000, 100_000)
HOT_A_BATCH = 10
_DEADLINE = 900.0  # seconds; a million keys take two minutes


def main() -> None:
    """Run the benchmark and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--skew", type=float, help="compare with this share of all events on one key")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "stack"
        stack = up(data, free_port(), free_port(), say)
        try:
            bench = Bench(Path(folder), stack.kafka.port, stack.clickhouse.port)
            if given.skew is None:
                found = bench.measure(given.keys, given.events)
            else:
                found = bench.compare(given.keys, given.events, given.skew)
            print(json.dumps(found, indent=2))
        finally:
            down(data, say)


class Bench:
    """The benchmark on one stack."""

    def __init__(self, folder: Path, kafka_port: int, clickhouse_port: int) -> None:
        self._folder, self._brokers, self._port = folder, f"127.0.0.1:{kafka_port}", clickhouse_port
        self._environment = {
            **os.environ,
            "GLASSFLOW_KAFKA_BROKERS": self._brokers,
            "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{clickhouse_port}",
        }
        self._draw = random.Random(SEED)

    def measure(self, keys: int, events: int) -> dict[str, object]:
        """Give all figures."""
        small = self._small_batches("small", SMALL_STATE)
        steady = self._steady("large", keys, events, skew=0)
        large = self._batches("large", self._even(keys))
        return {
            "keys": keys,
            **steady,
            f"milliseconds_of_{BATCH}_records_with_{SMALL_STATE}_keys": small,
            f"milliseconds_of_{BATCH}_records_with_{keys}_keys": large,
            "ratio_of_batches": round(large / small, 2),
            "cores": os.cpu_count(),
        }

    def compare(self, keys: int, events: int, skew: float) -> dict[str, object]:
        """Give the figures of even and of skewed keys, and of a key of which many events wait."""
        return {
            "keys": keys,
            "even": self._steady("even", keys, events, skew=0),
            f"{skew:.0%} on one key": self._steady("skewed", keys, events, skew),
            "waiting of one key": {count: self._held(f"held{count}", count) for count in HELD},
            "cores": os.cpu_count(),
        }

    def _steady(self, name: str, keys: int, events: int, skew: float) -> dict[str, object]:
        """Fill the state, then read events of both sides; key 0 has so large a share of them more."""
        self._make(name)
        say(f"{name}: filling the state with {keys:,} keys ...")
        self._send(f"{name}-right", (self._event("r", number, number) for number in range(keys)))
        self._run(name)
        before = self._ledger(name)
        say(f"{name}: sending {events:,} events ...")
        self._send(f"{name}-left", self._doubled("l", events // 2, keys, skew))
        self._send(f"{name}-right", self._doubled("R", events // 2, keys, skew))
        totals, memory = self._run(name)
        batches = self._ledger(name)[len(before) :]
        return {
            "totals": totals,
            "rows_per_second_second_half": round(self._rate(batches)),
            "median_milliseconds_of_a_batch": statistics.median(took for _, took in batches),
            "driver_memory_mib": memory,
        }

    def _held(self, name: str, count: int) -> dict[str, object]:
        """Let events of key 0 wait, and add to them; then let their right event come."""
        self._make(name)
        say(f"{name}: {count:,} events of one key wait ...")
        self._send(f"{name}-left", (self._event("l", number, 0) for number in range(count)))
        self._run(name)
        took = self._batches(name, self._some_hot)
        checkpoint = sum(file.stat().st_size for file in (self._state / f"{name}-join").rglob("*") if file.is_file())
        self._send(f"{name}-right", iter([self._event("r", 0, 0)]))
        totals, memory = self._run(name)
        return {
            f"milliseconds_of_{BATCH}_records": took,
            "checkpoint_mib": round(checkpoint / 2**20),
            "rows_when_the_right_event_came": totals["written"],
            "milliseconds_of_that_batch": [took for read, took in self._ledger(name) if read][-1],
            "driver_memory_mib_then": memory,
        }

    def _small_batches(self, name: str, keys: int) -> float:
        self._make(name)
        self._send(f"{name}-right", (self._event("r", number, number) for number in range(keys)))
        self._run(name)
        return self._batches(name, self._even(keys))

    def _even(self, keys: int) -> Callable[[str, int], int]:
        return lambda _side, _number: self._draw.randrange(keys)

    def _some_hot(self, side: str, number: int) -> int:
        """Give key 0 to a few left events of a batch; the others' keys are many."""
        return 0 if side == "left" and number < HOT_A_BATCH else self._draw.randrange(1, SMALL_STATE)

    def _batches(self, name: str, key: Callable[[str, int], int]) -> float:
        """Send small batches one after the other to a running pipeline; gives the median of their milliseconds.

        key: the key of a side's event by its number in the batch.
        """
        done = len(self._ledger(name))
        driver = subprocess.Popen(
            self._command(name), env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            for number in range(BATCHES):
                for side in SIDES:
                    half = [self._event(f"b{number}{side}", n, key(side, n)) for n in range(BATCH // 2)]
                    self._send(f"{name}-{side}", iter(half))
                self._await(name, done, (number + 1) * BATCH)
        finally:
            driver.terminate()
            driver.wait()
        batches = [took for read, took in self._ledger(name)[done:] if read]
        # Java warms up over the first ones.
        return statistics.median(batches[len(batches) // 2 :])

    def _await(self, name: str, done: int, records: int) -> None:
        deadline = time.monotonic() + _DEADLINE
        while sum(read for read, _ in self._ledger(name)[done:]) < records:
            if time.monotonic() > deadline:
                raise SystemExit("the driver does not get on")
            time.sleep(0.05)

    def _rate(self, batches: list[tuple[int, int]]) -> float:
        """Rows a second over the second half of the batches."""
        late = batches[len(batches) // 2 :]
        return sum(read for read, _ in late) / (sum(took for _, took in late) / 1000)

    def _ledger(self, name: str) -> list[tuple[int, int]]:
        """Records and milliseconds of each batch."""
        client = clickhouse_connect.get_client(host="127.0.0.1", port=self._port)
        return [
            (read, took)
            for read, took in client.query(
                "SELECT read, toUnixTimestamp64Milli(inserted_at) - toUnixTimestamp64Milli(batch_time) "
                "FROM default.glassflow_ledger WHERE pipeline_id = {name:String} ORDER BY batch_id",
                parameters={"name": f"{name}-join"},
            ).result_rows
        ]

    def _run(self, name: str) -> tuple[Any, float]:
        """Run a pipeline until it has caught up; gives its totals, and the driver's largest memory in MiB."""
        command = [*self._command(name), "--until-caught-up"]
        with subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True) as driver:
            memory = Memory({"driver": driver.pid})
            memory.start()
            out, _ = driver.communicate()
        peak = memory.stop()
        if driver.returncode != 0:
            raise SystemExit("the pipeline did not finish")
        return json.loads(out.splitlines()[-1]), peak["driver"]

    def _command(self, name: str) -> list[str]:
        run = [sys.executable, "-m", "glassflow_dagster", "run", str(self._file(name))]
        return [*run, "--state", str(self._state)]

    @property
    def _state(self) -> Path:
        return self._folder / "state"

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}-join.yaml"

    def _send(self, topic: str, events: Iterator[bytes]) -> None:
        send(self._brokers, topic, events, SEED, lambda _: None)

    def _doubled(self, prefix: str, count: int, keys: int, skew: float) -> Iterator[bytes]:
        """Events of random keys, such a share of them of key 0; a tenth come twice."""
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
        """Make the topics and the definition."""
        fields = [{"name": n, "type": "string"} for n in ("id", "user", "name", "email", "created_at")]
        fields += [{"name": "amount", "type": "int"}, {"name": "price", "type": "float"}]
        for side in SIDES:
            create_topic(self._brokers, f"{name}-{side}")
        columns = {"id": "String", "user": "String", "amount": "Int32", "price": "Float64", "name": "String"}
        definition = {
            "version": "v3",
            "pipeline_id": f"{name}-join",
            "sources": [
                {"type": "kafka", "source_id": side, "connection_params": {"brokers": [self._brokers]},
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
                "connection_params": {"host": "127.0.0.1", "port": self._port, "database": "default",
                                      "username": "default", "password": ""},
                "table": f"{name}_joined", "max_batch_size": 50_000, "max_delay_time": "200ms",
                "create_table": {"order_by": "id"},
                "mapping": [{"name": n, "column_name": n, "column_type": t}
                            for n, t in {**columns, "email": "String"}.items()],
            },
        }  # fmt: skip
        self._file(name).write_text(yaml.safe_dump(definition))


if __name__ == "__main__":
    main()
