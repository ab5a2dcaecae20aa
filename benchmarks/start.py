"""How long a pipeline takes from `glassflow-dagster run` to its first row in ClickHouse, and how much CPU time.

The topic holds a few events, or a backlog whose first batch is of the maximum size; its first block arrives only when
the whole batch has been read. The class data sharing archive that `make setup` creates exists, as it does for a user.

    make bench-start        or: python -m benchmarks.start --events 500000 --runs 1
"""

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED, distinct, fill_topic
from benchmarks.results import Runs, turns
from benchmarks.stack import running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.local.demo.produce import PARTITIONS

FEW = 10


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("start")
    parser.add_argument("--events", type=int, default=1_000_000, help="in the backlog")
    arguments = parser.parse_args()
    runs = Runs()
    topics = {"few": FEW, "backlog": arguments.events}
    with running_stack() as stack:
        for topic, events in topics.items():
            fill_topic(stack, topic, events)
        for turn, (topic, events) in turns(list(topics.items()), arguments.runs):
            keys = distinct(events)
            task = new_task(stack, topic, f"{topic}_{turn}")
            run = Run(ProductCase("glassflow-dagster"), stack, task, Expected(events, keys, keys))
            runs.measure(f"{events:,} events wait", run.start)
            run.drop()
    parameters = {"duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
    runs.write(arguments.results, "start", parameters)


if __name__ == "__main__":
    main()
