"""What a filter and six expressions cost: the flights pipeline with and without them, in turns, on one topic.

The filter keeps every event and the expressions give back what they were given, so both tables must hold the same rows;
that is checked. Prints one JSON object: rows a second over the second half of each run's batches, and the cost by pairs
of runs that follow each other, its median and its spread. A cost of 0.1 means a tenth fewer rows a second. What else
the machine does slows both runs of a pair; `load` says how much there was.

The first half of the batches is left out because Java compiles in it what it runs later: with fewer than three years
little else is measured.

    make bench-expressions        or: python -m benchmarks.expressions --years 3 --pairs 3
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import clickhouse_connect
import yaml

from benchmarks.throughput import FIRST_YEAR, SEED, say, second_half
from glassflow_dagster.demo.events import FLIGHTS_TOPIC, flight_event_count, flight_events
from glassflow_dagster.demo.produce import create_topic, send
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up

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
    """Run the benchmark and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--years", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "stack"
        stack = up(data, free_port(), free_port(), say)
        try:
            found = _measure(Path(folder), stack.kafka.port, stack.clickhouse.port, arguments.years, arguments.pairs)
            print(json.dumps(found, indent=2))
        finally:
            down(data, say)


def _measure(folder: Path, kafka_port: int, clickhouse_port: int, years: int, pairs: int) -> dict[str, object]:
    brokers = f"127.0.0.1:{kafka_port}"
    environment = {
        **os.environ,
        "GLASSFLOW_KAFKA_BROKERS": brokers,
        "GLASSFLOW_CLICKHOUSE_URL": f"http://127.0.0.1:{clickhouse_port}",
    }
    create_topic(brokers, FLIGHTS_TOPIC)
    say(f"sending {flight_event_count(years):,} events ...")
    sent = send(
        brokers, FLIGHTS_TOPIC, flight_events(tuple(range(FIRST_YEAR, FIRST_YEAR + years))), SEED, lambda _: None
    )
    client = clickhouse_connect.get_client(host="127.0.0.1", port=clickhouse_port)
    plain: list[float] = []
    with_expressions: list[float] = []
    loads: list[float] = []
    tables: set[Any] = set()
    for pair in range(pairs):
        # Turns change places, so that what slows the machine down over time slows both.
        for rates, change in ((plain, _plain), (with_expressions, _with_expressions))[:: 1 if pair % 2 else -1]:
            name = f"{change.__name__.strip('_').replace('_', '-')}-{pair}"
            _run(change(_definition(name)), folder, environment)
            rates.append(second_half(clickhouse_port, name))
            loads.append(round(os.getloadavg()[0], 1))
            say(f"{name}: {rates[-1]:,.0f} rows a second, load {loads[-1]}")
            table = f"analytics.`{name}`"
            tables.add(
                client.query(f"SELECT count(), sum(cityHash64(* EXCEPT ingested_at)) FROM {table}").result_rows[0]
            )
            client.command(f"DROP TABLE {table}")
    if len(tables) != 1:
        raise SystemExit(f"the tables differ: {tables}")
    costs = [1 - changed / base for base, changed in zip(plain, with_expressions, strict=True)]
    return {
        "events": sent,
        "rows_per_second": [round(rate) for rate in plain],
        "rows_per_second_with_expressions": [round(rate) for rate in with_expressions],
        "cost": [round(cost, 3) for cost in costs],
        "median_cost": round(statistics.median(costs), 3),
        "spread": [round(min(costs), 3), round(max(costs), 3)],
        "load": loads,
        "cores": os.cpu_count(),
    }


def _definition(name: str) -> dict[str, Any]:
    definition: dict[str, Any] = yaml.safe_load(Path("pipelines/flights.yaml").read_text(encoding="utf-8"))
    definition["pipeline_id"] = definition["sink"]["table"] = name
    return definition


def _plain(definition: dict[str, Any]) -> dict[str, Any]:
    return definition


def _with_expressions(definition: dict[str, Any]) -> dict[str, Any]:
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


def _run(definition: dict[str, Any], folder: Path, environment: dict[str, str]) -> None:
    file = folder / f"{definition['pipeline_id']}.yaml"
    file.write_text(yaml.safe_dump(definition), encoding="utf-8")
    command = [sys.executable, "-m", "glassflow_dagster", "run", str(file), "--until-caught-up"]
    done = subprocess.run(
        [*command, "--state", str(folder / "state")], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)


if __name__ == "__main__":
    main()
