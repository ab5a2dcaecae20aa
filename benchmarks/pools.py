"""What a small pipeline costs: with a JVM of its own, and in a pool with others.

Each pipeline deduplicates a topic of its own. Its driver is started in the background, one after the other. First the
topics are silent, then each gets a few events a second. Memory and CPU time are those of all drivers and of the pool,
divided by the number of pipelines.

    make bench-pools        or: python -m benchmarks.pools --pipelines 5 --runs 1
"""

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import SEED, Sender, event, key
from benchmarks.pipelines import dedup_definition, require_one_row_each, write_definition
from benchmarks.processes import Memory, cpu_seconds, tree
from benchmarks.results import Figures, Runs, turns
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.launch import launch_driver
from glassflow_dagster.control.pool_endpoint import pool_folder, read_endpoint
from glassflow_dagster.control.pool_launch import stop_pool
from glassflow_dagster.control.status import stream_status
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.local.demo.produce import create_topic

PIPELINES = 20
# More would not fit into the memory of a small machine.
OWN_PIPELINES = 4
POOL = "bench"
# Each event is a batch of its own, or nearly.
EVENTS_A_SECOND = 5
MAX_DELAY = "100ms"
# Java has compiled what runs once a batch, and once a second.
SETTLED_SECONDS = 30.0
MEASURED_SECONDS = 60.0
LAST_ROW_SECONDS = 30.0


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("pools")
    parser.add_argument("--pipelines", type=int, default=PIPELINES, help="in the pool")
    arguments = parser.parse_args()
    runs = Runs()
    cases = {"a JVM each": (OWN_PIPELINES, {}), "in a pool": (arguments.pipelines, {"pool": POOL})}
    with running_stack() as stack:
        for turn, (case, (count, more)) in turns(list(cases.items()), arguments.runs):
            fleet = Fleet(stack, [f"{POOL if more else 'own'}{turn}_{index:02}" for index in range(count)])
            runs.measure(case, lambda fleet=fleet, more=more: fleet.measure(more))
    parameters = {
        "pipelines": arguments.pipelines, "events_a_second": EVENTS_A_SECOND, "max_delay": MAX_DELAY, "seed": SEED,
    }  # fmt: skip
    runs.write(arguments.results, "pools", parameters)


class Fleet:
    """Pipelines that run at the same time."""

    def __init__(self, stack: Stack, names: list[str]) -> None:
        self._stack, self._names = stack, names

    def measure(self, more: dict[str, str]) -> Figures:
        """Start the pipelines, and return what they cost. more: further keys of their definitions."""
        count = len(self._names)
        with ExitStack() as running:
            began = time.monotonic()
            for name in self._names:
                self._start(name, more)
                running.callback(stop_driver, self._stack.state, name)
            started = time.monotonic() - began
            time.sleep(SETTLED_SECONDS)
            idle = self._cores(lambda: time.sleep(MEASURED_SECONDS))
            memory = Memory({str(pid): pid for pid in self._pids()})
            memory.start()
            busy = self._cores(self._send)
            peak = sum(memory.stop().values())
            self._require_rows()
        stop_pool(self._stack.state, POOL)
        shutil.rmtree(self._stack.state)
        return {
            "pipelines": count,
            "seconds_to_start_a_pipeline": started / count,
            "memory_mib_a_pipeline": peak / count,
            "cores_a_pipeline_without_events": idle / count,
            f"cores_a_pipeline_with_{EVENTS_A_SECOND}_events_a_second": busy / count,
        }

    def _start(self, name: str, more: dict[str, str]) -> None:
        create_topic(self._stack.brokers, name)
        definition = dedup_definition(name, name, max_batch_size=1000, max_delay_time=MAX_DELAY)
        file = write_definition(self._stack.folder, {**definition, **more})
        config = load_pipeline(file, self._stack.environment)
        say(f"{name}: starting ...")
        launch_driver(Deployment(self._stack.state, config=config, environment=self._stack.environment))

    def _pids(self) -> list[int]:
        """Return the process ids of the drivers and of the pool; their other processes descend from these."""
        heartbeats = [stream_status(self._stack.state, name).heartbeat for name in self._names]
        drivers = [beat.pid for beat in heartbeats if beat]
        pool = read_endpoint(pool_folder(self._stack.state, POOL))
        # It descends from the first driver, which started it, and must not be counted twice.
        if pool is None or any(pool.pid in tree(driver) for driver in drivers):
            return drivers
        return [*drivers, pool.pid]

    def _cores(self, wait: Callable[[], None]) -> float:
        """Return how many cores all processes use while `wait` runs."""
        pids = self._pids()
        began, used = time.monotonic(), cpu_seconds(*pids)
        wait()
        return (cpu_seconds(*pids) - used) / (time.monotonic() - began)

    def _send(self) -> None:
        """Send events to all topics at a constant rate."""
        senders = {name: Sender(self._stack.brokers, name, linger_ms=0) for name in self._names}
        began = time.monotonic()
        for number in range(int(MEASURED_SECONDS * EVENTS_A_SECOND)):
            for sender in senders.values():
                sender.send(key(number).encode(), event(number))
            time.sleep(max(0.0, began + (number + 1) / EVENTS_A_SECOND - time.monotonic()))
        for sender in senders.values():
            sender.finish()

    def _require_rows(self) -> None:
        """Wait for the last rows; exit where a table has not one row for each event."""
        expected, client = int(MEASURED_SECONDS * EVENTS_A_SECOND), self._stack.client()
        deadline = time.monotonic() + LAST_ROW_SECONDS
        for name in self._names:
            while client.query(f"SELECT count() FROM {name}").result_rows[0][0] < expected:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            require_one_row_each(client, name, expected)


if __name__ == "__main__":
    main()
