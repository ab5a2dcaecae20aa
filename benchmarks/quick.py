"""A check for regressions that takes five minutes: rate and CPU time beside the baseline consumer in the same run.

A machine's speed changes with its neighbours, so nothing is compared in events per second: each figure is the product's
divided by that of the baseline consumer (`benchmarks.peers.baseline`), which reads the same topic right before or after
it. The check fails where the median of such a ratio is more than 15 % below the one in benchmarks/results/quick.json.

    make bench-quick                     compares with the kept ratios
    python -m benchmarks.quick --keep    measures, and keeps the ratios
"""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import DUPLICATES, SEED, distinct, fill_topic
from benchmarks.peers.__main__ import PEERS, TOPIC
from benchmarks.results import Runs, turns
from benchmarks.shapes import STATELESS
from benchmarks.stack import running_stack
from benchmarks.steady_state import Consumer, Expected, ProductCase, Run, new_task
from glassflow_dagster.demo.produce import PARTITIONS

NAME = "quick"
# A ratio falls by less in a run of the same code: five runs differ by up to a tenth.
MOST_FALL = 0.15
COMPARED = ("events_per_second", "events_per_cpu_second")
BASELINE = PEERS["baseline"]
PRODUCTS = (ProductCase("deduplicated"), ProductCase("stateless", changes=STATELESS))

Ratios = Mapping[str, Mapping[str, float]]


def main() -> None:
    """Run the check; raise SystemExit where a ratio has fallen."""
    parser = results.parser(NAME)
    parser.set_defaults(runs=3)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run as those to compare with")
    arguments = parser.parse_args()
    # Read first: that they are missing should not be said after five minutes.
    kept = {} if arguments.keep else read_ratios(arguments.results / f"{NAME}.json")
    runs = measure(arguments.events, arguments.runs)
    for product in PRODUCTS:
        runs.compare(f"{product.name} : baseline", product.name, BASELINE.name)
    if arguments.keep:
        parameters = {"events": arguments.events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
        runs.write(arguments.results, NAME, parameters)
        return
    found = {case: {name: statistics.median(values) for name, values in runs.figures[case].items()} for case in kept}
    fallen = compare(kept, found)
    for line in fallen:
        say(line)
    raise SystemExit(1 if fallen else 0)


def measure(events: int, count: int) -> Runs:
    """Run baseline and products in turn on one topic of `events` events, `count` times each."""
    runs, keys = Runs(), distinct(events)
    consumers: list[Consumer] = [BASELINE, *PRODUCTS]
    with running_stack() as stack:
        fill_topic(stack, TOPIC, events)
        for turn, (place, consumer) in turns(list(enumerate(consumers)), count):
            rows = events if isinstance(consumer, ProductCase) and consumer.changes == STATELESS else keys
            run = Run(consumer, stack, new_task(stack, TOPIC, f"quick{place}_{turn}"), Expected(events, rows, keys))
            runs.measure(consumer.name, run.measure)
            run.drop()
    return runs


def read_ratios(file: Path) -> Ratios:
    """Return the kept ratios: case -> name of a ratio -> its median. Raises SystemExit where none are kept."""
    if not file.exists():
        raise SystemExit(f"{file} is missing; measure it on a quiet machine: python -m benchmarks.quick --keep")
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
    wanted = [f"ratio_of_{name}" for name in COMPARED]
    return {
        case: {name: content["figures"][name]["median"] for name in wanted}
        for case, content in cases.items()
        if set(wanted) <= content["figures"].keys()
    }


def compare(kept: Ratios, found: Ratios) -> list[str]:
    """Return a line for each ratio that is more than MOST_FALL below the kept one."""
    return [
        f"{case}: {name} is {found[case][name]:.3g}, {1 - found[case][name] / before:.0%} below the kept {before:.3g}; "
        "find the commit that made it slower, or keep the new ratio with --keep and say why"
        for case, ratios in kept.items()
        for name, before in ratios.items()
        if found[case][name] < before * (1 - MOST_FALL)
    ]


if __name__ == "__main__":
    main()
