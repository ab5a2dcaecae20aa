"""Throughput by kind of pipeline and event: with and without deduplication, small and large events, one core.

Topics hold seeded events, a tenth of them twice, when a pipeline starts with an empty table; `benchmarks.steady_state`
says how it is measured. Large events have a text that hardly compresses, which the table stores too.

    make bench-shapes        or: python -m benchmarks.shapes --events 500000 --runs 1
"""

import hashlib

from benchmarks import results
from benchmarks.events import COLUMNS, DUPLICATES, SEED, distinct, event, fill_topic
from benchmarks.results import Runs, turns
from benchmarks.stack import Stack, running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.demo.produce import PARTITIONS

# Length of the text that makes an event 1,500 bytes long.
TEXT_BYTES = 1298
# Divisor for the number of large events, which are eight times as long as small ones. A batch takes up to 200,000
# events of either size, and the slope needs several batches.
LARGE_SHARE = 2
STATELESS = {"transforms": []}
LARGE_COLUMNS = {**COLUMNS, "text": ("string", "String")}
ONE_CORE = ("spark.master=local[1]",)

SMALL = (
    ProductCase("deduplicated, 190 bytes"),
    ProductCase("stateless, 190 bytes", changes=STATELESS),
    ProductCase("deduplicated, 190 bytes, Spark on one core", conf=ONE_CORE),
)
LARGE = (
    ProductCase("deduplicated, 1.5 kB", columns=LARGE_COLUMNS),
    ProductCase("stateless, 1.5 kB", changes=STATELESS, columns=LARGE_COLUMNS),
)


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("shapes")
    parser.add_argument("--events", type=int, default=2_000_000, help="small ones; of large ones there are fewer")
    arguments = parser.parse_args()
    runs = Runs()
    counts = {"small": arguments.events, "large": arguments.events // LARGE_SHARE}
    with running_stack() as stack:
        for topic, make in (("small", event), ("large", large_event)):
            fill_topic(stack, topic, counts[topic], make)
        cases = [("small", shape) for shape in SMALL] + [("large", shape) for shape in LARGE]
        for turn, (place, (topic, shape)) in turns(list(enumerate(cases)), arguments.runs):
            _measure(runs, stack, shape, (topic, f"{topic}{place}_{turn}"), counts[topic])
    parameters = {"events": arguments.events, "large events": counts["large"], "duplicates": DUPLICATES, "seed": SEED}
    runs.write(arguments.results, "shapes", {**parameters, "partitions": PARTITIONS})


def _measure(runs: Runs, stack: Stack, shape: ProductCase, place: tuple[str, str], events: int) -> None:
    keys = distinct(events)
    rows = events if shape.changes == STATELESS else keys
    run = Run(shape, stack, new_task(stack, *place), Expected(events, rows, keys))
    runs.measure(shape.name, run.measure)
    run.drop()


def large_event(number: int) -> bytes:
    """Return the event with this number as 1,500 bytes of JSON."""
    return event(number, text=hashlib.shake_128(number.to_bytes(8)).hexdigest(TEXT_BYTES // 2))


if __name__ == "__main__":
    main()
