"""Whether a pipeline stays fast while its state grows: throughput with few keys and with ten million.

One topic holds enough events for all keys, a tenth of them twice. A pipeline reads it from an empty table to its last
row. Throughput and CPU time are slopes as in `benchmarks.steady_state`, here between two sizes of the state of one
process. A duplicate repeats any earlier event, so its lookup mostly reads state that is on disk.

    make bench-growth        or: python -m benchmarks.growth --keys 3000000 --runs 1
"""

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED, distinct, fill_topic
from benchmarks.results import Runs
from benchmarks.stack import running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task, part_name
from glassflow_dagster.local.demo.produce import PARTITIONS

TOPIC = "events"
KEYS = 10_000_000
# At this many keys the JVM has warmed up; two million more keys are about ten batches.
FEW = 500_000
SPAN = 2_000_000


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("growth")
    parser.add_argument("--keys", type=int, default=KEYS, help="in the state when the last part begins")
    arguments = parser.parse_args()
    runs = Runs()
    parts = [range(begin, begin + SPAN) for begin in (FEW, arguments.keys)]
    # A tenth more: the last samples belong to a batch that is not full.
    events = int((arguments.keys + 1.1 * SPAN) / (1 - DUPLICATES))
    keys = distinct(events)
    with running_stack() as stack:
        fill_topic(stack, TOPIC, events)
        for turn in range(arguments.runs):
            run = Run(
                ProductCase("glassflow-dagster"),
                stack,
                new_task(stack, TOPIC, f"growth_{turn}"),
                Expected(events, keys, keys),
            )
            runs.measure_parts([part_name(part) for part in parts], lambda run=run: run.grow(parts))
            run.drop()
    runs.compare("many to few", *(part_name(part) for part in reversed(parts)))
    runs.write(
        arguments.results,
        "growth",
        {"events": events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS},
    )


if __name__ == "__main__":
    main()
