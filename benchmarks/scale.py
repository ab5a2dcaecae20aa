"""How a deduplicating pipeline scales with cores: Spark within the driver, and on a standalone cluster.

The workers of the cluster are processes on this machine, of one core each. Broker and ClickHouse share the machine, so
that a second core of Spark's is never a whole one more. `benchmarks.steady_state` says how it is measured; CPU time and
memory count the cluster's processes, too, and the start up to the first row counts theirs.

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
from glassflow_dagster.demo.produce import PARTITIONS

TOPIC = "events"


@dataclass(frozen=True)
class OnCluster(ProductCase):
    """The same on a standalone cluster of so many workers."""

    workers: int = 1

    def command(self, task: Task, stack: Stack) -> list[str]:
        """`glassflow-dagster run` below the process that the cluster is below, too."""
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
    options = parser.parse_args()
    runs, keys = Runs(), distinct(options.events)
    with running_stack() as stack:
        fill_topic(stack, TOPIC, options.events)
        for turn, (position, case) in turns(list(enumerate(CASES)), options.runs):
            task = new_task(stack, TOPIC, f"scale{position}_{turn}")
            run = Run(case, stack, task, Expected(options.events, keys, keys))
            runs.measure(case.name, run.measure)
            run.drop()
    parameters = {"events": options.events, "keys": keys, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(options.results, "scale", {**parameters, "partitions": PARTITIONS})


if __name__ == "__main__":
    main()
