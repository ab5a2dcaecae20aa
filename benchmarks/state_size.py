"""What a batch costs with few and with many keys in the state, and what a key costs on disk and in memory.

A pipeline for each size deduplicates events of 190 bytes. Events of its own fill its state, then batches of one size
follow one by one: nine tenths of their events are new, a tenth repeats random keys of the state. Each run starts a new
driver. A large state is filled once and grows a little from run to run. A batch's time is from Spark's trigger to the
ledger row; time and CPU time of the driver are medians over the later half of the batches, after the JVM has warmed up.
The size on disk is measured after the driver has ended.

    make bench-state-size        or: python -m benchmarks.state_size --keys 10000 100000 --runs 1
"""

import statistics
import subprocess
from collections.abc import Iterable

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
from benchmarks.processes import Memory, cpu_seconds, folder_bytes
from benchmarks.results import Figures, Runs, turns
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.local.demo.produce import create_topic

KEYS = (10_000, 1_000_000, 10_000_000)
BATCH = 50_000
BATCHES = 11
# A batch starts when it is complete; this delay only prevents an endless wait.
MAX_DELAY = "60s"
BATCH_SECONDS = 300.0


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("state_size")
    parser.add_argument("--keys", type=int, nargs="+", default=list(KEYS), help="sizes of the state")
    parser.add_argument("--batch", type=int, default=BATCH, help="events in each batch that is measured")
    arguments = parser.parse_args()
    runs = Runs()
    with running_stack() as stack:
        benches: dict[int, Bench] = {}
        # The order alternates, so that a gradual slowdown of the machine affects all sizes.
        for number, keys in turns(arguments.keys, arguments.runs):
            if keys not in benches or not can_stay(keys, arguments.batch * BATCHES):
                benches[keys] = Bench(stack, f"state{keys}_{number}", arguments.batch)
                benches[keys].fill(keys)
            runs.measure(f"{keys:,} keys", benches[keys].measure)
    parameters = {"batch": arguments.batch, "batches": BATCHES, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(arguments.results, "state_size", parameters)


class Bench:
    """One pipeline with its state."""

    def __init__(self, stack: Stack, pipeline: str, batch: int) -> None:
        self._stack, self._pipeline, self._batch = stack, pipeline, batch
        self._client = stack.client()
        # Keys in the state, which is also the number of the next new event; and events sent so far.
        self._keys = self._sent = 0
        sink = {"max_batch_size": batch, "max_delay_time": MAX_DELAY}
        self._definition = write_definition(stack.folder, dedup_definition(pipeline, pipeline, **sink))
        create_topic(stack.brokers, pipeline)

    def fill(self, keys: int) -> None:
        """Fill the state with this many keys."""
        say(f"{self._pipeline}: filling the state with {keys:,} keys ...")
        self._send(range(keys))
        self._keys = keys
        run_to_the_end(self._stack, self._definition)

    def measure(self) -> Figures:
        """Run batches on a new driver; return their median cost and the size of the state."""
        keys_before = self._keys
        costs: list[float] = []
        done = len(batches(self._client, self._pipeline))
        with running_pipeline(self._stack, self._definition) as driver:
            memory = Memory({"driver": driver.pid})
            memory.start()
            for number in range(BATCHES):
                used = cpu_seconds(driver.pid)
                self._send_batch(driver, number)
                costs.append(cpu_seconds(driver.pid) - used)
            peak = memory.stop()
        took = [batch.milliseconds for batch in batches(self._client, self._pipeline)[done:]]
        if len(took) != BATCHES:
            raise SystemExit(f"{BATCHES} batches were sent, and {len(took)} made of them")
        require_one_row_each(self._client, self._pipeline, self._keys)
        return {
            "milliseconds_a_batch": statistics.median(took[BATCHES // 2 :]),
            "driver_cpu_seconds_a_batch": statistics.median(costs[BATCHES // 2 :]),
            "disk_bytes_a_key": folder_bytes(self._stack.state / self._pipeline) / self._keys,
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


if __name__ == "__main__":
    main()
