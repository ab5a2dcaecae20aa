"""Throughput by kind of pipeline and event: with and without deduplication, small, large and wide events, one core.

Topics hold seeded events, a tenth of them twice, when a pipeline starts with an empty table; `benchmarks.steady_state`
says how it is measured. Large events have a text that hardly compresses, wide events have 40 fields of many types; the
table stores all of them.

    make bench-shapes        or: python -m benchmarks.shapes --events 500000 --runs 1
"""

import hashlib

from benchmarks import results
from benchmarks.events import COLUMNS, DUPLICATES, SEED, distinct, event, fill_topic
from benchmarks.results import Runs, turns
from benchmarks.stack import Stack, running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.local.demo.produce import PARTITIONS

# Length of the text that makes an event 1,500 bytes long.
TEXT_BYTES = 1298
# Divisor for the number of large events, which are eight times as long as small ones. A batch takes up to 200,000
# events of either size, and the slope needs several batches.
LARGE_SHARE = 2
STATELESS = {"transforms": []}
LARGE_COLUMNS = {**COLUMNS, "text": ("string", "String")}
# 40 fields with those of every event.
WIDE_COLUMNS = {
    **COLUMNS,
    **{f"label_{n}": ("string", "LowCardinality(String)") for n in range(6)},
    **{f"text_{n}": ("string", "String") for n in range(9)},
    **{f"count_{n}": ("int", "Int64") for n in range(8)},
    **{f"ratio_{n}": ("float", "Float64") for n in range(5)},
    **{f"is_{n}": ("bool", "Bool") for n in range(3)},
    **{f"at_{n}": ("string", "DateTime64(3)") for n in range(2)},
}
# Hexadecimal digits of each text of a wide event, which make it 1,500 bytes long.
WIDE_TEXT = 72
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
WIDE = (
    ProductCase("deduplicated, 1.5 kB in 40 fields", columns=WIDE_COLUMNS),
    ProductCase("stateless, 1.5 kB in 40 fields", changes=STATELESS, columns=WIDE_COLUMNS),
)


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("shapes")
    parser.add_argument("--events", type=int, default=2_000_000, help="small ones; of large ones there are fewer")
    parser.add_argument("--only", action="append", choices=list(SHAPES), help="this kind of event; may be repeated")
    arguments = parser.parse_args()
    runs = Runs()
    shapes = {name: SHAPES[name] for name in arguments.only or SHAPES}
    counts = {name: arguments.events // (1 if name == "small" else LARGE_SHARE) for name in shapes}
    with running_stack() as stack:
        for topic, (make, _) in shapes.items():
            fill_topic(stack, topic, counts[topic], make)
        cases = [(topic, case) for topic, (_, measured) in shapes.items() for case in measured]
        for turn, (place, (topic, shape)) in turns(list(enumerate(cases)), arguments.runs):
            _measure(runs, stack, shape, (topic, f"{topic}{place}_{turn}"), counts[topic])
    parameters = {
        "events": arguments.events,
        "large events": arguments.events // LARGE_SHARE,
        "duplicates": DUPLICATES,
        "seed": SEED,
    }
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


def wide_event(number: int) -> bytes:
    """Return the event with this number as 1,500 bytes of JSON in 40 fields."""
    digits = hashlib.shake_128(number.to_bytes(8)).hexdigest(WIDE_TEXT * 9 // 2 + 1)
    more: dict[str, object] = {f"label_{n}": f"label {number % (10 + n)}" for n in range(6)}
    more |= {f"text_{n}": digits[n * WIDE_TEXT : (n + 1) * WIDE_TEXT] for n in range(9)}
    more |= {f"count_{n}": number * 7919 * (n + 1) % 10_000_000_000 for n in range(8)}
    more |= {f"ratio_{n}": number * 31 * (n + 1) % 1_000_003 / 1000 for n in range(5)}
    more |= {f"is_{n}": number % (n + 2) == 0 for n in range(3)}
    more |= {f"at_{n}": f"2026-01-0{n + 1}T{number % 24:02}:{number % 60:02}:05.{number % 1000:03}Z" for n in range(2)}
    return event(number, **more)


# The kinds of events: how one is made, and what is measured with them.
SHAPES = {"small": (event, SMALL), "large": (large_event, LARGE), "wide": (wide_event, WIDE)}


if __name__ == "__main__":
    main()
