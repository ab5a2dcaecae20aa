"""`make demo`: runs deduplication and join pipelines on the embedded stack and verifies their results independently.

Events are sent only once: a second run finds them in the topics and must find the same rows in the tables.
"""

import io
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from glassflow_dagster.demo.events import (
    DEPARTURES_TOPIC,
    FLIGHT_KEY,
    FLIGHTS_TOPIC,
    SMS_EVENTS,
    SMS_TOPIC,
    WEATHER_TOPIC,
    departure_events,
    departures,
    flight_event_count,
    flight_events,
    flights,
    weather,
    weather_events,
    with_resent_count,
)
from glassflow_dagster.demo.orders import (
    ORDERS_TOPIC,
    USERS_TOPIC,
    order_event_count,
    order_events,
    user_event_count,
    user_event_events,
)
from glassflow_dagster.demo.produce import count_events, create_topic, read_events, send
from glassflow_dagster.demo.recount import Joined, Record, differences, join_flights, join_orders, kinds
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.stack import up

_DATA = Path(".glassflow")
_KAFKA_PORT = int(os.environ.get("GLASSFLOW_KAFKA_PORT", "9092"))
_CLICKHOUSE_PORT = int(os.environ.get("GLASSFLOW_CLICKHOUSE_PORT", "8123"))
_BROKERS = f"127.0.0.1:{_KAFKA_PORT}"
_CLICKHOUSE = f"http://127.0.0.1:{_CLICKHOUSE_PORT}"
_SEED = 7
# Columns of the ledger that are summed over the batches of a pipeline.
_COUNTS = ("read", "written", "duplicates", "dead_letters", "late", "matched", "unmatched")

console = Console(stderr=True)


@dataclass(frozen=True)
class _Topic:
    """A topic of the demo; `sent` is the number of events that `events` yields."""

    name: str
    sent: int
    events: Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class _Demo:
    """A pipeline with one topic; `unique` is the number of rows that its table must have."""

    pipeline: str
    topic: _Topic
    table: str
    key: str
    unique: int


@dataclass(frozen=True)
class _Result:
    """Counts of a pipeline; `ledger` has the sums of its own ledger, the other counts do not use the product's code."""

    in_topic: int
    rows: int
    unique_rows: int
    ledger: Mapping[str, int]


@dataclass(frozen=True)
class _JoinDemo:
    """A pipeline that joins two topics; `join` computes the expected rows with pandas."""

    pipeline: str
    left: _Topic
    right: _Topic
    table: str
    join: Callable[[Iterable[Record], Iterable[Record]], Joined]


@dataclass(frozen=True)
class _JoinResult:
    """Counts of a join; `ledger` has the sums of its own ledger, the other values do not use the product's code.

    joined: the expected rows. rows: the number in the table; matched: of those with a right event. different: one
    line per kind of difference between the expected rows and the table's.
    """

    in_left: int
    in_right: int
    joined: Joined
    rows: int
    matched: int
    different: list[str]
    ledger: Mapping[str, int]


def main() -> int:
    """Run the demo; return 0 when every count has the expected value."""
    try:
        return _demo()
    except GlassflowError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1


def _demo() -> int:
    """Start the stack, run and verify all pipelines, print the counts; return 0 without mistakes, else 1."""
    console.rule("Kafka and ClickHouse, embedded")
    up(_DATA, _KAFKA_PORT, _CLICKHOUSE_PORT, console.print)
    mistakes: list[str] = []
    results, join_results = [], []
    for demo in _demos():
        _send_and_run(demo.pipeline, demo.topic)
        result = _count(demo)
        results.append((demo, result))
        mistakes += _mistakes(demo, result)
    mistakes += _different_flights()
    for join_demo in _join_demos():
        _send_and_run(join_demo.pipeline, join_demo.left, join_demo.right)
        join_result = _recount(join_demo)
        join_results.append((join_demo, join_result))
        mistakes += _join_mistakes(join_demo, join_result)
    _print_demos(results)
    _print_joins(join_results)
    for mistake in mistakes:
        console.print(mistake, style="red", markup=False)
    if not mistakes:
        console.print(
            "Every duplicate is dropped, nothing else is missing, all values of the flights equal the file's, and "
            "all joined rows equal those recomputed from the topics.",
            style="green",
        )
        console.print(
            "Waiting left events may still find a match: an order waits an hour for its user, the last day's flights "
            "wait for newer flights and weather.",
        )
        console.print("Look at it in Dagster: make dev")
    return 1 if mistakes else 0


def _demos() -> list[_Demo]:
    """Return the pipelines with one topic."""
    return [
        _Demo(
            pipeline="sms_status",
            topic=_Topic(SMS_TOPIC, len(SMS_EVENTS), lambda: (json.dumps(event).encode() for event in SMS_EVENTS)),
            table="analytics.sms_statuses_latest",
            key="sms_id",
            unique=len({event["sms_id"] for event in SMS_EVENTS}),
        ),
        _Demo(
            pipeline="flights",
            topic=_Topic(FLIGHTS_TOPIC, flight_event_count(), flight_events),
            table="analytics.flights",
            key=", ".join(FLIGHT_KEY),
            unique=len(flights().drop_duplicates(FLIGHT_KEY)),
        ),
    ]


def _join_demos() -> list[_JoinDemo]:
    """Return the pipelines that join two topics."""
    return [
        _JoinDemo(
            pipeline="orders_with_users",
            left=_Topic(ORDERS_TOPIC, order_event_count(), order_events),
            right=_Topic(USERS_TOPIC, user_event_count(), user_event_events),
            table="analytics.orders_with_users",
            join=join_orders,
        ),
        _JoinDemo(
            pipeline="flights_with_weather",
            left=_Topic(DEPARTURES_TOPIC, with_resent_count(len(departures())), departure_events),
            right=_Topic(WEATHER_TOPIC, with_resent_count(len(weather())), weather_events),
            table="analytics.flights_with_weather",
            join=join_flights,
        ),
    ]


def _send_and_run(pipeline: str, *topics: _Topic) -> None:
    """Send the events that the topics do not hold yet, then run the pipeline until it has caught up."""
    console.rule(f"Pipeline {pipeline}")
    for topic in topics:
        _send(topic)
    _run(pipeline)


def _send(topic: _Topic) -> None:
    """Send a topic's events unless it has all of them; raises when it holds another number of events."""
    create_topic(_BROKERS, topic.name)
    present = count_events(_BROKERS, topic.name)
    if present == topic.sent:
        console.print(f"topic {topic.name} has its {present:,} events already")
        return
    if present:
        raise GlassflowError(
            f"topic {topic.name} holds {present:,} events, which are not the demo's {topic.sent:,}; "
            "start over with: make clean demo"
        )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"sending to topic {topic.name}", total=topic.sent)
        send(_BROKERS, topic.name, topic.events(), _SEED, lambda count: progress.update(task, completed=count))


def _run(pipeline: str) -> None:
    """Run a pipeline in a process of its own until it has read all records; raises when it fails."""
    environment = {**os.environ, "GLASSFLOW_KAFKA_BROKERS": _BROKERS, "GLASSFLOW_CLICKHOUSE_URL": _CLICKHOUSE}
    command = [sys.executable, "-m", "glassflow_dagster", "run", f"pipelines/{pipeline}.yaml", "--until-caught-up"]
    completed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if completed.returncode != 0:
        raise GlassflowError(f"pipeline {pipeline} did not finish; the lines above say why")


def _count(demo: _Demo) -> _Result:
    """Count the topic's events, the table's rows and its unique keys, and read the ledger's sums."""
    rows, unique = _query(f"SELECT count(), uniqExact({demo.key}) FROM {demo.table} FORMAT TSV").split()
    return _Result(count_events(_BROKERS, demo.topic.name), int(rows), int(unique), _ledger(demo.pipeline))


def _ledger(pipeline: str) -> Mapping[str, int]:
    """Return the ledger's counts summed over a pipeline's batches; `waiting` is the last batch's value."""
    sums = ", ".join(f"sum({name}) AS {name}" for name in _COUNTS)
    sums_as_json = _query(
        f"SELECT {sums}, argMax(ledger.waiting, ledger.batch_id) AS waiting "
        f"FROM analytics.glassflow_ledger AS ledger WHERE pipeline_id = '{pipeline}' FORMAT JSONEachRow"
    )
    return {name: int(value) for name, value in json.loads(sums_as_json).items()}


def _mistakes(demo: _Demo, result: _Result) -> list[str]:
    """Return a line for each count that differs from the number of events sent or of unique keys among them."""
    duplicates = demo.topic.sent - demo.unique
    return _unexpected({
        f"events in topic {demo.topic.name}": (result.in_topic, demo.topic.sent),
        f"rows in {demo.table}": (result.rows, demo.unique),
        f"unique keys in {demo.table}": (result.unique_rows, demo.unique),
        f"{demo.pipeline}: read, as the ledger says": (result.ledger["read"], demo.topic.sent),
        f"{demo.pipeline}: duplicates, as the ledger says": (result.ledger["duplicates"], duplicates),
        f"{demo.pipeline}: written, as the ledger says": (result.ledger["written"], demo.unique),
    })  # fmt: skip


def _unexpected(figures: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a line for each figure, name -> (actual, expected), whose values differ."""
    return [
        f"{name}: {actual:,}, but must be {expected:,}"
        for name, (actual, expected) in figures.items()
        if actual != expected
    ]


def _different_flights() -> list[str]:
    """Compare every value in the table of flights with the data file; return a line per differing column."""
    actual = _rows("analytics.flights", flights()).sort_values(FLIGHT_KEY, ignore_index=True)
    expected = flights().astype(kinds(flights())).sort_values(FLIGHT_KEY, ignore_index=True)
    if actual.shape != expected.shape:
        return [f"analytics.flights has {len(actual):,} rows, the file has {len(expected):,}"]
    different = [name for name in expected.columns if not actual[name].equals(expected[name])]
    return [f"analytics.flights: column {name} differs from the file" for name in different]


def _recount(demo: _JoinDemo) -> _JoinResult:
    """Join the topics' events again with pandas and compare the expected rows with the table's."""
    left, right = (list(read_events(_BROKERS, topic.name)) for topic in (demo.left, demo.right))
    joined = demo.join(left, right)
    rows = _rows(demo.table, joined.rows)
    matched = int(rows[joined.right_column].notna().sum())
    different = differences(joined, rows)
    return _JoinResult(len(left), len(right), joined, len(rows), matched, different, _ledger(demo.pipeline))


def _join_mistakes(demo: _JoinDemo, result: _JoinResult) -> list[str]:
    """Return a line for each count or row of a join that differs from the expected one."""
    sent = demo.left.sent + demo.right.sent
    figures = {
        f"events in topic {demo.left.name}": (result.in_left, demo.left.sent),
        f"events in topic {demo.right.name}": (result.in_right, demo.right.sent),
        f"{demo.pipeline}: read, as the ledger says": (result.ledger["read"], sent),
        f"{demo.pipeline}: duplicates, as the ledger says": (result.ledger["duplicates"], sent - result.joined.unique),
        f"{demo.pipeline}: matched, as the ledger says": (result.ledger["matched"], result.matched),
        f"{demo.pipeline}: unmatched, as the ledger says": (result.ledger["unmatched"], result.rows - result.matched),
        f"{demo.pipeline}: waiting, as the ledger says": (
            result.ledger["waiting"], len(result.joined.rows) - result.rows,
        ),
        f"{demo.pipeline}: written, as the ledger says": (result.ledger["written"], result.rows),
    }  # fmt: skip
    return [*_unexpected(figures), *(f"{demo.table}: {difference}" for difference in result.different)]


def _rows(table: str, like: pd.DataFrame) -> pd.DataFrame:
    """Read a ClickHouse table into a frame with the columns and types of the frame `like`."""
    names = ", ".join(like.columns)
    text = _query(f"SELECT {names} FROM {table} FORMAT CSVWithNames SETTINGS date_time_output_format = 'iso'")
    return pd.read_csv(io.StringIO(text), na_values=["\\N"], keep_default_na=False, dtype=kinds(like))


def _query(sql: str) -> str:
    """Run a query over ClickHouse's HTTP interface and return the response body."""
    request = urllib.request.Request(f"{_CLICKHOUSE}/?{urllib.parse.urlencode({'query': sql})}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def _print_demos(results: list[tuple[_Demo, _Result]]) -> None:
    """Print the counts of the pipelines with one topic."""
    table_rows: list[tuple[str, Callable[[_Demo, _Result], int]]] = [
        ("events in Kafka (counted apart)", lambda _, r: r.in_topic),
        ("read", lambda _, r: r.ledger["read"]),
        ("duplicates dropped", lambda _, r: r.ledger["duplicates"]),
        ("dead letters", lambda _, r: r.ledger["dead_letters"]),
        ("written", lambda _, r: r.ledger["written"]),
        ("unique events sent (counted apart)", lambda d, _: d.unique),
        ("rows in ClickHouse (counted apart)", lambda _, r: r.rows),
        ("residual duplicates (counted apart)", lambda _, r: r.rows - r.unique_rows),
    ]
    figures = {name: [value(demo, result) for demo, result in results] for name, value in table_rows}
    _print_figures("What was sent, and what arrived", [demo.pipeline for demo, _ in results], figures)


def _print_joins(results: list[tuple[_JoinDemo, _JoinResult]]) -> None:
    """Print the counts of the joins."""
    table_rows: list[tuple[str, Callable[[_JoinResult], int]]] = [
        ("left events in Kafka (counted apart)", lambda r: r.in_left),
        ("right events in Kafka (counted apart)", lambda r: r.in_right),
        ("read", lambda r: r.ledger["read"]),
        ("duplicates dropped", lambda r: r.ledger["duplicates"]),
        ("dead letters", lambda r: r.ledger["dead_letters"]),
        ("late", lambda r: r.ledger["late"]),
        ("matched", lambda r: r.ledger["matched"]),
        ("unmatched", lambda r: r.ledger["unmatched"]),
        ("waiting", lambda r: r.ledger["waiting"]),
        ("written", lambda r: r.ledger["written"]),
        ("rows expected (computed apart)", lambda r: int(r.joined.decided.sum())),
        ("rows in ClickHouse (counted apart)", lambda r: r.rows),
        ("of them without a match (counted apart)", lambda r: r.rows - r.matched),
    ]
    figures = {name: [value(result) for _, result in results] for name, value in table_rows}
    _print_figures("What was joined", [demo.pipeline for demo, _ in results], figures)


def _print_figures(title: str, pipelines: Iterable[str], figures: Mapping[str, Iterable[int]]) -> None:
    """Print a table with a column per pipeline and a row per figure."""
    table = Table(title=title)
    table.add_column("")
    for pipeline in pipelines:
        table.add_column(pipeline, justify="right")
    for name, values in figures.items():
        table.add_row(name, *(f"{value:,}" for value in values))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
