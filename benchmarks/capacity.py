"""What a batch costs the driver and the executors by the number of tasks, on a cluster of one worker with one core.

A topic with 2 to 512 partitions, a state with 2 to 512 partitions, and batches of a few events: what a batch costs is
then the cost of its tasks. Batches that run inline, within the driver, have no tasks, but visit all partitions, too.
It is CPU time by the kernel's counters, of the driver (its Python and its JVM) and of the executor with its Python
workers; the time of day would only say how busy the machine is. Files and bytes of a batch are those of its version of
the state. `fit` gives the coefficients of a plane through the cases, for glassflow_dagster/definition/capacity.

    make bench-capacity     or: python -m benchmarks.capacity --runs 1 --partitions 2 32
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import results
from benchmarks.cluster import running_cluster
from benchmarks.console import say
from benchmarks.events import SEED, fill
from benchmarks.pipelines import batches, dedup_definition, running_pipeline, wait_until, write_definition
from benchmarks.processes import cpu_seconds, tree
from benchmarks.results import Figures, Runs
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.local.demo.produce import create_topic

PARTITIONS = (2, 8, 32, 128, 512)
# Of a batch: few, so that its tasks are what it costs.
EVENTS = 500
# Java compiles its code in the first ones.
WARM_UP, MEASURED = 4, 6
_BATCH_SECONDS = 240.0
_VERSION = re.compile(r"(\d+)\.(changelog|zip)")


@dataclass(frozen=True)
class Case:
    """A topic and a state with so many partitions."""

    topic_partitions: int
    state_partitions: int
    is_inline: bool = False

    @property
    def name(self) -> str:
        """The name of the case in the results."""
        inline = ", inline" if self.is_inline else ""
        return f"{self.topic_partitions} of the topic, {self.state_partitions} of the state{inline}"

    @property
    def pipeline(self) -> str:
        """The name of its pipeline, topic and table."""
        return f"capacity_{self.topic_partitions}_{self.state_partitions}_{'inline' if self.is_inline else 'jobs'}"


def cases(partitions: Sequence[int]) -> list[Case]:
    """Return the cases in which only one of the two numbers grows from the least one."""
    least, *more = partitions
    jobs = [Case(least, number) for number in partitions] + [Case(number, least) for number in more]
    return [*jobs, *(Case(least, number, is_inline=True) for number in partitions)]


def measure(stack: Stack, master: str, case: Case) -> Figures:
    """Run batches of a few events, one after the other; return what one of them has cost."""
    definition = dedup_definition(case.pipeline, case.pipeline, max_batch_size=50_000, max_delay_time="100ms")
    definition["resources"] = {"transform": [{"source_id": "events", "replicas": case.state_partitions}]}
    if not case.is_inline:
        definition["spark"] = {"spark.master": master, "spark.executor.memory": "1g"}
    create_topic(stack.brokers, case.pipeline, case.topic_partitions)
    client = stack.client()
    with running_pipeline(stack, write_definition(stack.folder, definition)) as driver:
        used: list[tuple[float, float]] = []
        for number in range(WARM_UP + MEASURED):
            if number == WARM_UP:
                done, used = len(batches(client, case.pipeline)), [_used(driver.pid)]
            fill(stack.brokers, case.pipeline, range(number * EVENTS, (number + 1) * EVENTS))
            wanted = (number + 1) * EVENTS
            wait_until(
                lambda wanted=wanted: sum(batch.read for batch in batches(client, case.pipeline)) >= wanted,
                driver, _BATCH_SECONDS, f"{wanted} events of {case.name} are read",
            )  # fmt: skip
        used.append(_used(driver.pid))
        count = len(batches(client, case.pipeline)) - done
    (driver_before, executor_before), (driver_after, executor_after) = used
    files = list(_files_of_versions(stack.state / case.pipeline / "checkpoint" / "state"))
    versions = sorted({version for version, _ in files})[-MEASURED:]
    sizes = [size for version, size in files if version in versions]
    return {
        "driver_cpu_ms_a_batch": 1000 * (driver_after - driver_before) / count,
        "executor_cpu_ms_a_batch": 1000 * (executor_after - executor_before) / count,
        "state_files_a_batch": len(sizes) / len(versions),
        "state_bytes_a_batch": sum(sizes) / len(versions),
        "batches": count,
    }


def _used(driver: int) -> tuple[float, float]:
    """Return the CPU seconds of the driver and of the executors of this process's workers."""
    return cpu_seconds(driver), sum(cpu_seconds(pid) for pid in _executors())


def _executors() -> Iterator[int]:
    for pid in tree(os.getpid()):
        with suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid


def _files_of_versions(state: Path) -> Iterator[tuple[int, int]]:
    """Yield version and bytes of the files that hold the versions of the state."""
    for file in state.glob("*/*/*"):
        if match := _VERSION.fullmatch(file.name):
            yield int(match[1]), file.stat().st_size


def fit(runs: Runs, measured: Sequence[Case], figure: str) -> tuple[float, float, float]:
    """Return the figure of a batch without tasks, and what each partition of the topic and of the state adds to it."""
    rows, values = [], []
    for case in measured:
        for value in runs.figures[case.name][figure]:
            # Each case weighs the same, whatever its size.
            rows.append(np.array([1.0, case.topic_partitions, case.state_partitions]) / value)
            values.append(1.0)
    found, *_ = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)
    return tuple(float(each) for each in found)  # type: ignore[return-value]


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("capacity")
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    arguments = parser.parse_args()
    runs, measured = Runs(), cases(arguments.partitions)
    for _ in range(arguments.runs):
        # A stack for each run, whose topics are new.
        with running_stack() as stack, running_cluster(1) as master:
            for case in measured:
                runs.measure(case.name, lambda case=case: measure(stack, master, case))
    jobs = [case for case in measured if not case.is_inline]
    for figure in ("driver_cpu_ms_a_batch", "executor_cpu_ms_a_batch"):
        base, of_topic, of_state = fit(runs, jobs, figure)
        text = f"{base:.0f} ms, {of_topic:.2f} for a partition of the topic, {of_state:.2f} for one of the state"
        runs.remark(measured[0].name, **{f"fit of {figure}": text})
        say(f"{figure}: {text}")
    runs.write(arguments.results, "capacity", {"events a batch": EVENTS, "seed": SEED, "workers": 1})


if __name__ == "__main__":
    main()
