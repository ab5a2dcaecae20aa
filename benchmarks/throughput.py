"""Throughput and memory of the flights pipeline, with broker, ClickHouse and Dagster on the same machine.

Sends the flights of 2013 six times with other dates (2.2 M events of 19 fields, a tenth of them twice), runs the
pipeline until it has caught up, and prints one JSON object: rows a second over the second half of the batches, the
largest memory of all processes together (proportional set size), and the rate of a bare consumer that only counts
the same topic, so that figures of different machines can be set in relation.

    make bench        or: python benchmarks/throughput.py --years 2
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import clickhouse_connect

from glassflow_dagster.demo.events import FLIGHTS_TOPIC, flight_event_count, flight_events
from glassflow_dagster.demo.produce import count_events, create_topic, send
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up

FIRST_YEAR = 2013
SEED = 7
DAGSTER_START_SECONDS = 120.0


class Memory(threading.Thread):
    """Samples the memory of process trees, once a second; `peak` is in MiB, all processes together."""

    def __init__(self, roots: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._roots = roots
        self._over = threading.Event()
        self.peak: dict[str, float] = {}

    def run(self) -> None:
        """Sample until stopped."""
        while not self._over.wait(1.0):
            found = {name: sum(_proportional_set_size(pid) for pid in tree(root)) for name, root in self._roots.items()}
            if sum(found.values()) > sum(self.peak.values()):
                self.peak = found

    def stop(self) -> dict[str, float]:
        """Give the sample with the largest sum, by name."""
        self._over.set()
        self.join()
        return {name: round(size) for name, size in self.peak.items()}


def main() -> None:
    """Run the benchmark and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--years", type=int, default=6)
    years = parser.parse_args().years
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "stack"
        stack = up(data, free_port(), free_port(), say)
        try:
            print(json.dumps(_measure(Path(folder), stack.kafka.port, stack.clickhouse.port, years, stack), indent=2))
        finally:
            down(data, say)


def _measure(folder: Path, kafka_port: int, clickhouse_port: int, years: int, stack: object) -> dict[str, object]:
    brokers = f"127.0.0.1:{kafka_port}"
    environment = {
        **os.environ,
        "GLASSFLOW_KAFKA_BROKERS": brokers,
        "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{clickhouse_port}",
        "GLASSFLOW_STATE": str(folder / "state"),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "DAGSTER_HOME": str(folder),
    }
    create_topic(brokers, FLIGHTS_TOPIC)
    say(f"sending {flight_event_count(years):,} events ...")
    events = flight_events(tuple(range(FIRST_YEAR, FIRST_YEAR + years)))
    sent = send(brokers, FLIGHTS_TOPIC, events, SEED, lambda _: None)
    began = time.monotonic()
    if count_events(brokers, FLIGHTS_TOPIC) != sent:
        raise SystemExit("the topic does not hold what was sent")
    bare = sent / (time.monotonic() - began)

    port = free_port()
    dagster = subprocess.Popen(
        [str(Path(sys.executable).with_name("dagster")), "dev", "--port", str(port)],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _await_dagster(port)
        command = [sys.executable, "-m", "glassflow_dagster", "run", "pipelines/flights.yaml", "--until-caught-up"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as driver:
            memory = Memory(
                {
                    "driver": driver.pid,
                    "kafka": stack.kafka.pid,
                    "clickhouse": stack.clickhouse.pid,
                    "dagster": dagster.pid,
                }
            )
            memory.start()
            out, _ = driver.communicate()
        peak = memory.stop()
        if driver.returncode != 0:
            raise SystemExit("the pipeline did not finish")
    finally:
        dagster.terminate()
        dagster.wait()
    rate = second_half(clickhouse_port, "flights")
    return {
        "events": sent,
        "totals": json.loads(out.splitlines()[-1]),
        "rows_per_second_second_half": round(rate),
        "bare_consumer_rows_per_second": round(bare),
        "ratio_to_bare_consumer": round(rate / bare, 3),
        "peak_memory_mib": {**peak, "together": sum(peak.values())},
        "cores": os.cpu_count(),
    }


def second_half(clickhouse_port: int, pipeline: str) -> float:
    """Rows a second from the batch that passes half of the events to the last one's end."""
    client = clickhouse_connect.get_client(host="127.0.0.1", port=clickhouse_port)
    rows = client.query(
        "SELECT read, toUnixTimestamp64Milli(inserted_at) FROM analytics.glassflow_ledger "
        "WHERE pipeline_id = {pipeline:String} ORDER BY batch_id",
        parameters={"pipeline": pipeline},
    ).result_rows
    total, seen = sum(read for read, _ in rows), 0
    for index, (read, ended) in enumerate(rows):
        seen += read
        if seen >= total / 2:
            return sum(r for r, _ in rows[index + 1 :]) / ((rows[-1][1] - ended) / 1000)
    raise SystemExit("too few batches; send more years")


def _await_dagster(port: int) -> None:
    deadline = time.monotonic() + DAGSTER_START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit("dagster dev did not come up")


def tree(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def _proportional_set_size(pid: int) -> float:
    """MiB of a process, shared pages divided among those that share them; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def say(text: str) -> None:
    """Tell how far the benchmark is."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
