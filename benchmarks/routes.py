"""Throughput by the number of tables: the same events in one table, divided among four, and in one and a quarter more.

`benchmarks.steady_state` says how it is measured; a row counts wherever it is. The conditions of the routes are short
comparisons of a number, so that the figures show what routing costs, and not what expressions cost.

    make bench-routes        or: python -m benchmarks.routes --events 500000 --runs 1
"""

from typing import Any

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED, distinct, fill_topic
from benchmarks.pipelines import visible_rows
from benchmarks.results import Runs, turns
from benchmarks.stack import running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.local.demo.produce import PARTITIONS

# The field `amount` of an event is a number below 15: each condition takes about a quarter of the events.
FURTHER = {f"quarter_{n}": f"amount % 4 == {n}" for n in range(3)}
ONE, DIVIDED, COPIED = "one table", "four tables", "a table of all, and three of a quarter"


class RoutedRun(Run):
    """A run whose rows are in one table or in several; those of `FURTHER` begin with the name of the own table."""

    def drop(self) -> None:
        """Remove all tables of the run."""
        for name in FURTHER:
            self._client.command(f"DROP TABLE IF EXISTS {self._task.table}_{name}")
        super().drop()


class DividedRun(RoutedRun):
    """A run in which each row is in one of the tables."""

    def _rows(self) -> int:
        names = (self._task.table, *(f"{self._task.table}_{name}" for name in FURTHER))
        return sum(visible_rows(self._client, name) for name in names)

    @property
    def _all_rows(self) -> str:
        return f"merge(currentDatabase(), '^{self._task.table}(_quarter_.)?$')"


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("routes")
    parser.add_argument("--events", type=int, default=2_000_000)
    arguments = parser.parse_args()
    runs = Runs()
    keys = distinct(arguments.events)
    with running_stack() as stack:
        fill_topic(stack, "events", arguments.events)
        for turn, name in turns(list(CASES), arguments.runs):
            kind, sink = CASES[name]
            task = new_task(stack, "events", f"routed_{list(CASES).index(name)}_{turn}")
            case = ProductCase(name, sink=_of_table(sink, task.table))
            run = kind(case, stack, task, Expected(arguments.events, keys, keys))
            runs.measure(name, run.measure)
            run.drop()
    for name in (DIVIDED, COPIED):
        runs.compare(f"{name} : {ONE}", name, ONE)
    parameters = {"events": arguments.events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
    runs.write(arguments.results, "routes", parameters)


def _of_table(sink: dict[str, Any], table: str) -> dict[str, Any]:
    """Return keys of a sink, with routes to tables whose names begin with that of the own table."""
    if not sink:
        return {}
    routes = [{"table": f"{table}_{name}", "filter": condition} for name, condition in FURTHER.items()]
    return {**sink, "routes": routes}


# How the rows are counted, and the keys of the sink beside the routes; none where there are no routes.
CASES: dict[str, tuple[type[Run], dict[str, Any]]] = {
    ONE: (RoutedRun, {}),
    DIVIDED: (DividedRun, {"match": "first"}),
    COPIED: (RoutedRun, {"match": "all", "filter": "true", "unrouted": "drop"}),
}


if __name__ == "__main__":
    main()
