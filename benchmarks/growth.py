"""Whether a pipeline stays fast while its state grows: the rate beside few keys and beside ten million.

One topic has events enough for all of these keys, a tenth of them twice, and a pipeline reads it from an empty table to
its last row. Rate and CPU time are slopes as in `benchmarks.steady_state`, here between one number of keys in the state
and another, of one and the same process. A repeated event is drawn from all before it, so it becomes a look at a state
that is mostly on disk.

    make bench-growth        or: python -m benchmarks.growth --keys 3000000 --runs 1
"""

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED, distinct, fill_topic
from benchmarks.results import Runs
from benchmarks.stack import running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.demo.produce import PARTITIONS

TOPIC = "events"
KEYS = 10_000_000
# Java has warmed up by then, and two million more are some ten batches.
FEW = 500_000
SPAN = 2_000_000


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("growth")
    parser.add_argument("--keys", type=int, default=KEYS, help="in the state when the last part begins")
    options = parser.parse_args()
    runs = Runs()
    # Row numbers: with few keys in the state, and with many.
    parts = [range(begin, begin + SPAN) for begin in (FEW, options.keys)]
    # A little more: the last samples are of a batch that is not full.
    events = int((options.keys + 1.1 * SPAN) / (1 - DUPLICATES))
    keys = distinct(events)
    with running_stack() as stack:
        fill_topic(stack, TOPIC, events)
        for turn in range(options.runs):
            run = Run(
                ProductCase("glassflow-dagster"),
                stack,
                new_task(stack, TOPIC, f"growth_{turn}"),
                Expected(events, keys, keys),
            )
            runs.measure_parts([_name(part) for part in parts], lambda run=run: run.grow(parts))
            run.drop()
    runs.compare("many to few", *(_name(part) for part in reversed(parts)))
    runs.write(
        options.results, "growth", {"events": events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
    )


def _name(keys: range) -> str:
    return f"{keys.start / 1e6:g} to {keys.stop / 1e6:g} million keys"


if __name__ == "__main__":
    main()
