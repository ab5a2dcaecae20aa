"""Whether a pipeline with a long window stays fast: throughput, memory and disk up to a hundred million keys.

One topic holds enough events for all keys; a tenth of them repeat any earlier event, so that their keys are mostly on
disk. A pipeline reads it from an empty table to its last row; each part of the run has a tenth of the keys. Then some
events follow, and the driver is started again, with all keys in its checkpoint.

The rows of the table are in the order in which they arrive, so that ClickHouse's merges cost the same in all parts.

    make bench-depth        or: python -m benchmarks.depth --keys 20000000
"""

import multiprocessing
from collections.abc import Mapping
from itertools import islice
from typing import Any

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import DUPLICATES, SEED, distinct, fill, numbers
from benchmarks.results import Runs
from benchmarks.stack import Stack, running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task, part_name
from glassflow_dagster.local.demo.produce import PARTITIONS, create_topic

TOPIC = "events"
KEYS = 100_000_000
PARTS = 10
# Producers in processes of their own: one makes and sends 70,000 events a second.
PRODUCERS = 2
# Sent while the driver is down.
AFTERWARDS = 1_000
# Rows stay in the order in which they arrive.
UNSORTED: Mapping[str, Any] = {"create_table": {}}
RESTART = "start with the keys of all parts"


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("depth")
    parser.set_defaults(runs=1)
    parser.add_argument("--keys", type=int, default=KEYS, help="in the state at the end")
    arguments = parser.parse_args()
    runs = Runs()
    step = arguments.keys // PARTS
    parts = [range(begin, begin + step) for begin in range(0, arguments.keys, step)]
    # A hundredth more: the last samples belong to a batch that is not full.
    events = int(1.01 * arguments.keys / (1 - DUPLICATES))
    keys = distinct(events)
    with running_stack() as stack:
        create_topic(stack.brokers, TOPIC)
        say(f"{TOPIC}: sending {events:,} events ...")
        _send(stack.brokers, events)
        for turn in range(arguments.runs):
            expected = Expected(events, keys, keys)
            case = ProductCase("glassflow-dagster", sink=UNSORTED)
            run = Run(case, stack, new_task(stack, TOPIC, f"depth{turn}"), expected)
            runs.measure_parts([part_name(part) for part in parts], lambda run=run: run.grow(parts))
            runs.measure(RESTART, lambda run=run: run.restart(lambda: _send_more(stack, keys)))
            run.drop()
    # The JVM warms up within the first part.
    runs.compare("last to second part", part_name(parts[-1]), part_name(parts[1]))
    parameters = {"events": events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
    runs.write(arguments.results, "depth", parameters)


def _send(brokers: str, events: int) -> None:
    """Send the first events of `numbers` from several processes: each event once, in about their order."""
    arguments = [(brokers, events, producer) for producer in range(PRODUCERS)]
    with multiprocessing.get_context("spawn").Pool(PRODUCERS) as pool:
        pool.starmap(_send_share, arguments)


def _send_share(brokers: str, events: int, producer: int) -> None:
    fill(brokers, TOPIC, islice(numbers(events), producer, None, PRODUCERS))


def _send_more(stack: Stack, first: int) -> int:
    """Send new events to the topic; return their number."""
    return fill(stack.brokers, TOPIC, range(first, first + AFTERWARDS))


if __name__ == "__main__":
    main()
