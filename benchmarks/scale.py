"""How a deduplicating pipeline scales with cores: Spark within the driver, and on a standalone cluster.

The workers of the cluster are processes on this machine, with one core each. Broker and ClickHouse share the machine,
so a second core for Spark is never entirely available. `benchmarks.steady_state` says how it is measured; CPU time,
memory and the time to the first row include the cluster's processes.

    make bench-scale        or: python -m benchmarks.scale --events 500000 --runs 1
"""

import sys
from dataclasses import dataclass

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED, distinct, fill_topic
from benchmarks.peers.task import Task
from benchmarks.results import Runs, turns
from benchmarks.stack import Stack, running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.local.demo.produce import PARTITIONS

TOPIC = "events"


@dataclass(frozen=True)
class OnCluster(ProductCase):
    """The pipeline on a standalone cluster with `workers` workers."""

    workers: int = 1

    def command(self, task: Task, stack: Stack) -> list[str]:
        """Return `glassflow-dagster run` as a child of the process that starts the cluster."""
        return [sys.executable, "-m", "benchmarks.cluster", str(self.workers), *super().command(task, stack)]


CASES = (
    ProductCase("within the driver, 1 core", conf=("spark.master=local[1]",)),
    ProductCase("within the driver, 2 cores", conf=("spark.master=local[2]",)),
    OnCluster("cluster, 1 worker", workers=1),
    OnCluster("cluster, 2 workers", workers=2),
)


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("scale")
    parser.add_argument("--events", type=int, default=2_000_000)
    arguments = parser.parse_args()
    runs, keys = Runs(), distinct(arguments.events)
    with running_stack() as stack:
        fill_topic(stack, TOPIC, arguments.events)
        for turn, (place, case) in turns(list(enumerate(CASES)), arguments.runs):
            task = new_task(stack, TOPIC, f"scale{place}_{turn}")
            run = Run(case, stack, task, Expected(arguments.events, keys, keys))
            runs.measure(case.name, run.measure)
            run.drop()
    parameters = {"events": arguments.events, "keys": keys, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(arguments.results, "scale", {**parameters, "partitions": PARTITIONS})


if __name__ == "__main__":
    main()
