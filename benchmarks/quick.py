"""A check for regressions that takes five minutes: rate and CPU time beside those of an earlier commit in the same run.

A machine's speed changes with its neighbours, so each figure is divided by that of the baseline consumer
(`benchmarks.peers.baseline`), which reads the same topic right before or after it. Such a ratio is one of a machine,
too, as the pipeline uses all cores and the consumer one: of two machines of the same description one reached three
quarters of the other's with the same code. So the commit of benchmarks/results/quick.json runs beside the checkout, and
the check fails where the median of a ratio is more than 15 % below that of this commit.

    make bench-quick                     compares with the kept commit
    python -m benchmarks.quick --keep    measures, and makes this commit the one to compare with
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import DUPLICATES, SEED, distinct, fill_topic
from benchmarks.kept_commit import program_of
from benchmarks.peers.__main__ import PEERS, TOPIC
from benchmarks.results import CHANGED, Runs, turns
from benchmarks.shapes import STATELESS
from benchmarks.stack import running_stack
from benchmarks.steady_state import Consumer, Expected, ProductCase, Run, new_task
from glassflow_dagster.local.demo.produce import PARTITIONS

NAME = "quick"
# A ratio falls by less in a run of the same code: five runs differ by up to a tenth.
MOST_FALL = 0.15
COMPARED = ("events_per_second", "events_per_cpu_second")
BASELINE = PEERS["baseline"]
PRODUCTS = (ProductCase("deduplicated"), ProductCase("stateless", changes=STATELESS))


def main() -> None:
    """Run the check; raise SystemExit where a ratio has fallen."""
    parser = results.parser(NAME)
    parser.set_defaults(runs=3)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keep", action="store_true", help="keep this commit as the one to compare with")
    arguments = parser.parse_args()
    if arguments.keep:
        parameters = {"events": arguments.events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
        measure(PRODUCTS, arguments.events, arguments.runs).write(arguments.results, NAME, parameters)
        return
    commit = read_commit(arguments.results / f"{NAME}.json")
    program = program_of(commit)
    kept = [replace(product, name=kept_name(product.name, commit), program=program) for product in PRODUCTS]
    fallen = compare(measure([*PRODUCTS, *kept], arguments.events, arguments.runs).figures, commit)
    for line in fallen:
        say(line)
    raise SystemExit(1 if fallen else 0)


def measure(products: Sequence[ProductCase], events: int, count: int) -> Runs:
    """Run baseline and products in turn on one topic of `events` events, `count` times each."""
    runs, keys = Runs(), distinct(events)
    consumers: list[Consumer] = [BASELINE, *products]
    with running_stack() as stack:
        fill_topic(stack, TOPIC, events)
        # Not kept: the broker's JVM is slow until it has served a driver for some seconds.
        warming = Run(products[0], stack, new_task(stack, TOPIC, "quick_warming"), Expected(events, keys, keys))
        warming.measure()
        warming.drop()
        for turn, (place, consumer) in turns(list(enumerate(consumers)), count):
            rows = events if isinstance(consumer, ProductCase) and consumer.changes == STATELESS else keys
            run = Run(consumer, stack, new_task(stack, TOPIC, f"quick{place}_{turn}"), Expected(events, rows, keys))
            runs.measure(consumer.name, run.measure)
            run.drop()
    for product in products:
        runs.compare(ratio_name(product.name), product.name, BASELINE.name)
    return runs


def read_commit(file: Path) -> str:
    """Return the commit whose ratios are kept. Raises SystemExit where none are."""
    if not file.exists():
        raise SystemExit(f"{file} is missing; measure it on a quiet machine: python -m benchmarks.quick --keep")
    commit: str = json.loads(file.read_text(encoding="utf-8"))["commit"]
    return commit.removesuffix(CHANGED)


def kept_name(name: str, commit: str) -> str:
    """Return the case of a product as the kept commit runs it."""
    return f"{name} at {commit}"


def ratio_name(name: str) -> str:
    """Return the case of the ratios of a product to the baseline."""
    return f"{name} : baseline"


def compare(figures: Mapping[str, Mapping[str, Sequence[float]]], commit: str) -> list[str]:
    """Return a line for each compared ratio that is more than MOST_FALL below that of the kept commit.

    Says all medians that it compares, too. figures: case -> name -> its runs.
    """
    fallen = []
    for product in PRODUCTS:
        case, kept = ratio_name(product.name), ratio_name(kept_name(product.name, commit))
        for name in (f"ratio_of_{each}" for each in COMPARED):
            found, before = (statistics.median(figures[of][name]) for of in (case, kept))
            text = f"{case}: {name} is {found:.3g}, and {before:.3g} at {commit}"
            say(text)
            if found < before * (1 - MOST_FALL):
                fallen.append(
                    f"{text}: it fell by {1 - found / before:.0%}; find the commit that made it slower, or keep this "
                    "one as the measure with --keep, and say why"
                )
    return fallen


if __name__ == "__main__":
    main()
