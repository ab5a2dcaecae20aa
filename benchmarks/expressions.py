"""What a filter and six expressions cost: the flights pipeline with and without them, alternately, on one topic.

The filter keeps every event and the expressions return their input, so both tables must hold the same rows, which is
checked. Measured are rows a second over the second half of each run's batches, and the ratio of the two runs of a pair,
which follow each other: 0.9 means a tenth fewer rows a second. Other load on the machine slows both runs of a pair;
`load` in the results says how high it was.

The first half of the batches is left out because the JVM compiles its code then. With fewer than three years of flights
the benchmark measures little but that compilation.

    make bench-expressions        or: python -m benchmarks.expressions --years 3 --runs 3
"""

from typing import Any

from benchmarks import results
from benchmarks.events import SEED
from benchmarks.pipelines import batches, run_to_the_end, second_half, write_definition
from benchmarks.results import Figures, Runs
from benchmarks.stack import Stack, running_stack
from benchmarks.throughput import flights_definition, require_one_table, send_flights

FILTER = 'distance > 0.5 * 10 and (carrier in ["UA", "AA", "B6", "DL"] or not (tailnum == "none"))'
EXPRESSIONS = {
    "carrier": "upper(trim(carrier))",
    "origin": 'hasPrefix(origin, "J") ? "JFK" : origin',
    "dest": 'replace(dest, "-", "")',
    "distance": "toInt(round(distance * 1.0))",
    "hour": 'toInt(split(split(time_hour, "T")[1], ":")[0]) == hour ? hour : hour + 0',
    "minute": "minute % 60",
}
TYPES = {"string": "string", "int": "int"}


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("expressions")
    parser.add_argument("--years", type=int, default=6)
    arguments = parser.parse_args()
    runs = Runs()
    tables: set[Any] = set()
    with running_stack() as stack:
        sent = send_flights(stack, arguments.years)
        for pair in range(arguments.runs):
            kinds = {
                "plain": flights_definition(f"plain-{pair}"),
                "with expressions": with_expressions(flights_definition(f"with-expressions-{pair}")),
            }
            # The order alternates, so that a gradual slowdown of the machine affects both kinds.
            for kind in list(kinds)[:: 1 if pair % 2 else -1]:
                runs.measure(kind, lambda definition=kinds[kind]: _measure(stack, definition, tables))
    runs.compare("what they cost", "with expressions", "plain")
    runs.write(arguments.results, "expressions", {"years": arguments.years, "events": sent, "seed": SEED})


def _measure(stack: Stack, definition: dict[str, Any], tables: set[Any]) -> Figures:
    name = definition["pipeline_id"]
    run_to_the_end(stack, write_definition(stack.folder, definition))
    client = stack.client()
    require_one_table(client, name, tables)
    return {"rows_per_second": second_half(batches(client, name, "analytics"))}


def with_expressions(definition: dict[str, Any]) -> dict[str, Any]:
    """Add the filter and the expressions to a definition and return it."""
    fields = definition["sources"][0]["schema_fields"]
    outputs = [
        {
            "output_name": field["name"],
            "expression": EXPRESSIONS.get(field["name"], field["name"]),
            "output_type": TYPES[field["type"]],
        }
        for field in fields
    ]
    definition["transforms"] += [
        {"type": "filter", "source_id": "flights", "config": {"expression": FILTER}},
        {"type": "stateless", "source_id": "flights", "config": {"transforms": outputs}},
    ]
    return definition


if __name__ == "__main__":
    main()
