"""`make demo`: the main job on the embedded stack, and its result beside counts that the product had no hand in.

Events are sent once: a second run finds them in the topics, and must find the same rows in the tables.
"""

import io
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from glassflow_dagster.demo.events import (
    FLIGHT_KEY,
    FLIGHTS_TOPIC,
    SMS_EVENTS,
    SMS_TOPIC,
    flight_event_count,
    flight_events,
    flights,
)
from glassflow_dagster.demo.produce import count_events, create_topic, send
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.stack import up

_DATA = Path(".glassflow")
_KAFKA_PORT = int(os.environ.get("GLASSFLOW_KAFKA_PORT", "9092"))
_CLICKHOUSE_PORT = int(os.environ.get("GLASSFLOW_CLICKHOUSE_PORT", "8123"))
_BROKERS = f"127.0.0.1:{_KAFKA_PORT}"
_CLICKHOUSE = f"http://127.0.0.1:{_CLICKHOUSE_PORT}"
_SEED = 7

console = Console(stderr=True)


@dataclass(frozen=True)
class _Demo:
    """One pipeline of the demo: what is sent, and what must come of it."""

    pipeline: str
    topic: str
    table: str
    key: str
    sent: int
    unique: int
    events: Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class _Result:
    """Figures of a pipeline; `ledger` is the product's own account, the rest was counted apart from it."""

    in_topic: int
    rows: int
    unique_rows: int
    ledger: dict[str, int]


def main() -> int:
    """Run the demo; 0 when every count is what it must be."""
    try:
        return _demo()
    except GlassflowError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1


def _demo() -> int:
    console.rule("Kafka and ClickHouse, embedded")
    up(_DATA, _KAFKA_PORT, _CLICKHOUSE_PORT, console.print)
    wrong: list[str] = []
    results = []
    for demo in _demos():
        console.rule(f"Pipeline {demo.pipeline}")
        _send(demo)
        _run(demo)
        result = _count(demo)
        results.append((demo, result))
        wrong += _mistakes(demo, result)
    wrong += _different_flights()
    _print(results)
    for mistake in wrong:
        console.print(mistake, style="red", markup=False)
    if not wrong:
        console.print(
            "Every duplicate is gone, nothing else is missing, and all values of the flights equal the file's.",
            style="green",
        )
        console.print("Look at it in Dagster: make dev")
    return 1 if wrong else 0


def _demos() -> list[_Demo]:
    unique_flights = len(flights().drop_duplicates(FLIGHT_KEY))
    return [
        _Demo(
            pipeline="sms_status",
            topic=SMS_TOPIC,
            table="analytics.sms_statuses_latest",
            key="sms_id",
            sent=len(SMS_EVENTS),
            unique=len({event["sms_id"] for event in SMS_EVENTS}),
            events=lambda: (json.dumps(event).encode() for event in SMS_EVENTS),
        ),
        _Demo(
            pipeline="flights",
            topic=FLIGHTS_TOPIC,
            table="analytics.flights",
            key=", ".join(FLIGHT_KEY),
            sent=flight_event_count(),
            unique=unique_flights,
            events=flight_events,
        ),
    ]


def _send(demo: _Demo) -> None:
    create_topic(_BROKERS, demo.topic)
    present = count_events(_BROKERS, demo.topic)
    if present == demo.sent:
        console.print(f"topic {demo.topic} has its {present:,} events already")
        return
    if present:
        raise GlassflowError(
            f"topic {demo.topic} holds {present:,} events, which are not the demo's {demo.sent:,}; "
            "start over with: make clean demo"
        )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"sending to topic {demo.topic}", total=demo.sent)
        send(_BROKERS, demo.topic, demo.events(), _SEED, lambda count: progress.update(task, completed=count))


def _run(demo: _Demo) -> None:
    environment = {**os.environ, "GLASSFLOW_KAFKA_BROKERS": _BROKERS, "GLASSFLOW_CLICKHOUSE_URL": _CLICKHOUSE}
    command = [sys.executable, "-m", "glassflow_dagster", "run", f"pipelines/{demo.pipeline}.yaml", "--until-caught-up"]
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode != 0:
        raise GlassflowError(f"pipeline {demo.pipeline} did not finish; the lines above say why")


def _count(demo: _Demo) -> _Result:
    rows, unique = _query(f"SELECT count(), uniqExact({demo.key}) FROM {demo.table} FORMAT TSV").split()  # noqa: S608
    account = _query(
        "SELECT sum(read) AS read, sum(written) AS written, sum(duplicates) AS duplicates, "  # noqa: S608
        f"sum(dead_letters) AS dead_letters FROM analytics.glassflow_ledger WHERE pipeline_id = '{demo.pipeline}' "
        "FORMAT JSONEachRow"
    )
    ledger = {name: int(value) for name, value in json.loads(account).items()}
    return _Result(count_events(_BROKERS, demo.topic), int(rows), int(unique), ledger)


def _mistakes(demo: _Demo, result: _Result) -> list[str]:
    expected = {
        f"events in topic {demo.topic}": (result.in_topic, demo.sent),
        f"rows in {demo.table}": (result.rows, demo.unique),
        f"unique keys in {demo.table}": (result.unique_rows, demo.unique),
        f"{demo.pipeline}: read, as the ledger says": (result.ledger["read"], demo.sent),
        f"{demo.pipeline}: duplicates, as the ledger says": (result.ledger["duplicates"], demo.sent - demo.unique),
        f"{demo.pipeline}: written, as the ledger says": (result.ledger["written"], demo.unique),
    }
    return [f"{what}: {found:,}, but must be {must:,}" for what, (found, must) in expected.items() if found != must]


def _different_flights() -> list[str]:
    """Compare every value of every flight with the file."""
    names = list(flights().columns)
    text = _query(f"SELECT {', '.join(names)} FROM analytics.flights FORMAT CSVWithNames")  # noqa: S608
    found = pd.read_csv(io.StringIO(text), na_values=["\\N"], keep_default_na=False, dtype=_types())
    found["time_hour"] = found["time_hour"].str.replace(" ", "T") + "Z"
    expected = flights().astype(_types()).sort_values(FLIGHT_KEY, ignore_index=True)
    found = found.sort_values(FLIGHT_KEY, ignore_index=True)
    if found.shape != expected.shape:
        return [f"analytics.flights has {len(found):,} rows, the file has {len(expected):,}"]
    different = [name for name in names if not found[name].equals(expected[name])]
    return [f"analytics.flights: column {name} is not what the file has" for name in different]


def _types() -> dict[Hashable, str]:
    return {
        name: "string" if str(kind) in ("object", "str", "string") else "Int64"
        for name, kind in flights().dtypes.items()
    }


def _query(sql: str) -> str:
    request = urllib.request.Request(f"{_CLICKHOUSE}/?{urllib.parse.urlencode({'query': sql})}")  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return str(answer.read().decode())


def _print(results: list[tuple[_Demo, _Result]]) -> None:
    table = Table(title="What was sent, and what arrived")
    table.add_column("")
    for demo, _ in results:
        table.add_column(demo.pipeline, justify="right")
    lines: list[tuple[str, Callable[[_Demo, _Result], int]]] = [
        ("events in Kafka (counted apart)", lambda _, r: r.in_topic),
        ("read", lambda _, r: r.ledger["read"]),
        ("duplicates dropped", lambda _, r: r.ledger["duplicates"]),
        ("dead letters", lambda _, r: r.ledger["dead_letters"]),
        ("written", lambda _, r: r.ledger["written"]),
        ("unique events sent (counted apart)", lambda d, _: d.unique),
        ("rows in ClickHouse (counted apart)", lambda _, r: r.rows),
        ("residual duplicates (counted apart)", lambda _, r: r.rows - r.unique_rows),
    ]
    for name, value in lines:
        table.add_row(name, *(f"{value(demo, result):,}" for demo, result in results))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
