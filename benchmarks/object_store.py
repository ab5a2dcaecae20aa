"""What a checkpoint in an object store costs, beside one in a local folder: rate, CPU time and latency.

The store is versitygw on the same machine, which answers within a millisecond or two and takes its share of the two
cores; one across a network answers later and takes none. The rate is that of a backlog, over the second half of the
batches; the latency is that of `benchmarks.latency`, whose pipeline has one place. Both places take turns.

    make bench-object-store     or: python -m benchmarks.object_store --events 500000 --seconds 20 --runs 1
"""

import os
import time
from dataclasses import dataclass

from benchmarks import results
from benchmarks.console import say
from benchmarks.events import DUPLICATES, SEED, distinct, fill, numbers
from benchmarks.latency import Bench, plan
from benchmarks.pipelines import (
    batches,
    dedup_definition,
    require_one_row_each,
    run_to_the_end,
    second_half,
    write_definition,
)
from benchmarks.processes import cpu_seconds
from benchmarks.results import Figures, Runs, turns
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.local.demo.produce import create_topic
from glassflow_dagster.local.object_store import BUCKET, object_store_variables
from glassflow_dagster.local.ports import free_port

TOPIC = "backlog"
# Of the latency: with this delay a batch has few records, so that its checkpoint files are much of what it costs.
RATE = 2000
SINK = {"max_batch_size": 50_000, "max_delay_time": "100ms"}
KEYS = 100_000


@dataclass(frozen=True)
class Place:
    """Where a checkpoint is: the name of its cases, and `state` of the definition; None for the local folder."""

    name: str
    state: dict[str, str] | None


PLACES = (Place("local folder", None), Place("object store", {"url": f"s3a://{BUCKET}/bench"}))


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("object_store")
    parser.add_argument("--events", type=int, default=2_000_000, help="of the backlog")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured of the latency")
    arguments = parser.parse_args()
    runs, port = Runs(), free_port()
    os.environ.update(object_store_variables(port))
    with running_stack(port) as stack:
        create_topic(stack.brokers, TOPIC)
        say(f"sending {arguments.events:,} events ...")
        fill(stack.brokers, TOPIC, numbers(arguments.events))
        benches = {place.name: _filled(stack, place) for place in PLACES}
        for turn, place in turns(PLACES, arguments.runs):
            runs.measure(
                f"{place.name}, backlog",
                lambda turn=turn, place=place: _measure_backlog(stack, place, turn, arguments.events),
            )
            benches[place.name].run(runs, plan([RATE], arguments.seconds), arguments.seconds, f"{place.name}, ")
    for part in ("backlog", f"{RATE:,} events/s"):
        local, remote = (f"{place.name}, {part}" for place in PLACES)
        runs.compare(f"object store to local folder, {part}", remote, local)
    parameters = {
        "events": arguments.events, "seconds": arguments.seconds, "keys": KEYS, **SINK,
        "duplicates": DUPLICATES, "seed": SEED,
    }  # fmt: skip
    runs.write(arguments.results, "object_store", parameters)


def _filled(stack: Stack, place: Place) -> Bench:
    """Return the pipeline whose latency is measured, with its keys in the place."""
    bench = Bench(stack, f"latency_{_suffix(place)}", KEYS, SINK, place.state)
    bench.fill()
    return bench


def _measure_backlog(stack: Stack, place: Place, turn: int, events: int) -> Figures:
    """Read all events into a new table with a new state in the place; return rate, seconds and CPU time."""
    pipeline = f"backlog_{_suffix(place)}_{turn}"
    definition = dedup_definition(pipeline, TOPIC)
    if place.state:
        definition["state"] = place.state
    store = stack.object_store_pid
    began, store_before = time.monotonic(), cpu_seconds(store) if store else 0.0
    run_to_the_end(stack, write_definition(stack.folder, definition))
    took, store_used = time.monotonic() - began, (cpu_seconds(store) if store else 0.0) - store_before
    client = stack.client()
    require_one_row_each(client, pipeline, distinct(events))
    rate = second_half(batches(client, pipeline))
    client.command(f"DROP TABLE {pipeline}")
    return {"events_per_second_second_half": rate, "seconds": took, "store_cpu_seconds": store_used}


def _suffix(place: Place) -> str:
    return place.name.replace(" ", "_")


if __name__ == "__main__":
    main()
