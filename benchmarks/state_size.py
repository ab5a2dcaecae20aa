"""What the same batch costs beside few keys and many, and what a key costs on disk and in memory.

A pipeline for each size deduplicates events of 190 bytes. Its state is filled by events of its own, then batches of
one size come, one after the other: nine tenths are new, a tenth repeat keys drawn from all that the state holds. Each
run is a driver of its own. A large state is filled once, and grows a little from run to run. A batch's time is Spark's,
from its trigger to its row in the ledger; it and the driver's CPU time are medians over the later half of the batches,
when Java has warmed up. What lies on disk is counted when the driver has ended.

    make bench-state-size        or: python -m benchmarks.state_size --keys 10000 100000 --runs 1
"""

import statistics
import subprocess
from collections.abc import Iterable
from pathlib import Path

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import DUPLICATES, SEED, can_stay, distinct, fill, numbers
from benchmarks.pipelines import (
    batches,
    dedup_definition,
    require_one_row_each,
    run_to_the_end,
    running_pipeline,
    wait_until,
    write_definition,
)
from benchmarks.processes import Memory, cpu_seconds
from benchmarks.results import Figures, Runs, turns
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.demo.produce import create_topic

KEYS = (10_000, 1_000_000, 10_000_000)
BATCH = 50_000
BATCHES = 11
# A batch starts when it is whole; this only ends a wait that would be for ever.
MAX_DELAY = "60s"
BATCH_SECONDS = 300.0


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("state_size")
    parser.add_argument("--keys", type=int, nargs="+", default=list(KEYS), help="sizes of the state")
    parser.add_argument("--batch", type=int, default=BATCH, help="events in each batch that is measured")
    options = parser.parse_args()
    runs = Runs()
    with running_stack() as stack:
        benches: dict[int, Bench] = {}
        # Turns change places, so that what slows the machine down over time slows all sizes.
        for number, keys in turns(options.keys, options.runs):
            if keys not in benches or not can_stay(keys, options.batch * BATCHES):
                benches[keys] = Bench(stack, f"state{keys}_{number}", options.batch)
                benches[keys].fill(keys)
            runs.measure(f"{keys:,} keys", benches[keys].measure)
    parameters = {"batch": options.batch, "batches": BATCHES, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(options.results, "state_size", parameters)


class Bench:
    """One pipeline with its state."""

    def __init__(self, stack: Stack, pipeline: str, batch: int) -> None:
        self._stack, self._pipeline, self._batch = stack, pipeline, batch
        self._client = stack.client()
        # Keys that the state holds, and events that were sent: the numbers of the next ones.
        self._keys = self._sent = 0
        sink = {"max_batch_size": batch, "max_delay_time": MAX_DELAY}
        self._definition = write_definition(stack.folder, dedup_definition(pipeline, pipeline, **sink))
        create_topic(stack.brokers, pipeline)

    def fill(self, keys: int) -> None:
        """Read this number of keys into the state."""
        say(f"{self._pipeline}: filling the state with {keys:,} keys ...")
        self._send(range(keys))
        self._keys = keys
        run_to_the_end(self._stack, self._definition)

    def measure(self) -> Figures:
        """Measure BATCHES batches with the current state; return the medians of their second half, and sizes."""
        keys_before = self._keys
        costs: list[float] = []
        done = len(batches(self._client, self._pipeline))
        with running_pipeline(self._stack, self._definition) as driver:
            memory = Memory({"driver": driver.pid})
            memory.start()
            for number in range(BATCHES):
                cpu_before = cpu_seconds(driver.pid)
                self._send_batch(driver, number)
                costs.append(cpu_seconds(driver.pid) - cpu_before)
            peak = memory.stop()
        durations = [batch.milliseconds for batch in batches(self._client, self._pipeline)[done:]]
        if len(durations) != BATCHES:
            raise SystemExit(f"{BATCHES} batches were sent, and {len(durations)} made of them")
        require_one_row_each(self._client, self._pipeline, self._keys)
        return {
            "milliseconds_a_batch": statistics.median(durations[BATCHES // 2 :]),
            "driver_cpu_seconds_a_batch": statistics.median(costs[BATCHES // 2 :]),
            "disk_bytes_a_key": _size(self._stack.state / self._pipeline) / self._keys,
            "driver_memory_mib": peak["driver"],
            "keys_before": keys_before,
            "keys_after": self._keys,
        }

    def _send_batch(self, driver: subprocess.Popen[bytes], number: int) -> None:
        """Send a batch, and wait until the ledger has it."""
        seed = SEED + number
        self._send(numbers(self._batch, first=self._keys, seed=seed))
        self._keys += distinct(self._batch, first=self._keys, seed=seed)
        wait_until(self._all_read, driver, BATCH_SECONDS, f"batch {number} was done")

    def _all_read(self) -> bool:
        return sum(batch.read for batch in batches(self._client, self._pipeline)) == self._sent

    def _send(self, chosen: Iterable[int]) -> None:
        self._sent += fill(self._stack.brokers, self._pipeline, chosen)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
