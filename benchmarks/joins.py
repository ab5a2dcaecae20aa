"""What a join costs: throughput in steady state, and a small batch beside a small and a large state.

Two topics of seeded events of some 190 bytes, a tenth of them twice; both sides are deduplicated; inner, latest match,
processing clock, windows of an hour. First the right side alone fills the state, one event for each of so many keys;
then left and right events come in equal numbers. Prints one JSON object: rows a second over the second half of that,
and the median time of batches of 2,000 records with a small and with the full state, from Spark's batch time to the
ledger's row.

    make bench-joins        or: python -m benchmarks.joins --keys 100000 --events 200000
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import yaml

from benchmarks.throughput import SEED, say
from glassflow_dagster.demo.produce import create_topic, send
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up

SMALL_STATE = 10_000
BATCH = 2000
BATCHES = 21
_DEADLINE = 900.0  # seconds; a million keys take two minutes


def main() -> None:
    """Run the benchmark and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "stack"
        stack = up(data, free_port(), free_port(), say)
        try:
            bench = Bench(Path(folder), stack.kafka.port, stack.clickhouse.port)
            print(json.dumps(bench.measure(given.keys, given.events), indent=2))
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
        self._make("large")
        say(f"filling the state with {keys:,} keys ...")
        self._send("large-right", (self._event("r", number, number) for number in range(keys)))
        self._run("large", "--until-caught-up")
        before = self._ledger("large")
        say(f"sending {events:,} events ...")
        self._send("large-left", self._doubled("l", events // 2, keys))
        self._send("large-right", self._doubled("R", events // 2, keys))
        totals = self._run("large", "--until-caught-up")
        steady = self._rate(self._ledger("large")[len(before) :])
        large = self._batches("large", keys)
        return {
            "keys": keys,
            "totals": totals,
            "rows_per_second_second_half": round(steady),
            f"milliseconds_of_{BATCH}_records_with_{SMALL_STATE}_keys": small,
            f"milliseconds_of_{BATCH}_records_with_{keys}_keys": large,
            "ratio_of_batches": round(large / small, 2),
            "cores": os.cpu_count(),
        }

    def _small_batches(self, name: str, keys: int) -> float:
        self._make(name)
        self._send(f"{name}-right", (self._event("r", number, number) for number in range(keys)))
        self._run(name, "--until-caught-up")
        return self._batches(name, keys)

    def _batches(self, name: str, keys: int) -> float:
        """Send small batches one after the other to a running pipeline; gives the median of their milliseconds."""
        done = len(self._ledger(name))
        command = [sys.executable, "-m", "glassflow_dagster", "run", str(self._file(name)), "--state", str(self._state)]
        driver = subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for number in range(BATCHES):
                half = [self._event(f"b{number}l", n, self._draw.randrange(keys)) for n in range(BATCH // 2)]
                self._send(f"{name}-left", iter(half))
                half = [self._event(f"b{number}r", n, self._draw.randrange(keys)) for n in range(BATCH // 2)]
                self._send(f"{name}-right", iter(half))
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

    def _run(self, name: str, *options: str) -> Any:
        command = [sys.executable, "-m", "glassflow_dagster", "run", str(self._file(name)), *options]
        done = subprocess.run(
            [*command, "--state", str(self._state)],
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return json.loads(done.stdout.splitlines()[-1])

    @property
    def _state(self) -> Path:
        return self._folder / "state"

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}-join.yaml"

    def _send(self, topic: str, events: Iterator[bytes]) -> None:
        send(self._brokers, topic, events, SEED, lambda _: None)

    def _doubled(self, prefix: str, count: int, keys: int) -> Iterator[bytes]:
        """Events of random keys; a tenth come twice."""
        for number in range(count * 10 // 11):
            event = self._event(prefix, number, self._draw.randrange(keys))
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
        sides = ("left", "right")
        for side in sides:
            create_topic(self._brokers, f"{name}-{side}")
        columns = {"id": "String", "user": "String", "amount": "Int32", "price": "Float64", "name": "String"}
        definition = {
            "version": "v3",
            "pipeline_id": f"{name}-join",
            "sources": [
                {"type": "kafka", "source_id": side, "connection_params": {"brokers": [self._brokers]},
                 "topic": f"{name}-{side}", "schema_fields": fields} for side in sides
            ],
            "transforms": [
                {"type": "dedup", "source_id": side, "config": {"key": "id", "time_window": "1h"}} for side in sides
            ],
            "join": {
                "enabled": True,
                **{f"{side}_source": {"source_id": side, "key": "user", "time_window": "1h"} for side in sides},
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
