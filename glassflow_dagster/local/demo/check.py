"""Counts what the demo's pipelines have written, and compares it with what was sent; uses no code of the pipelines."""

import io
import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from glassflow_dagster.local.demo.events import FLIGHT_KEY, flights
from glassflow_dagster.local.demo.pipelines import Demo, JoinDemo
from glassflow_dagster.local.demo.produce import count_events, read_events
from glassflow_dagster.local.demo.recount import Joined, differences, kinds

# Columns of the ledger that are summed over the batches of a pipeline.
_COUNTS = ("read", "written", "duplicates", "dead_letters", "late", "matched", "unmatched")


@dataclass(frozen=True)
class Servers:
    """Where the events and the rows are.

    brokers: Kafka's bootstrap servers.
    clickhouse: URL of its HTTP interface.
    """

    brokers: str
    clickhouse: str


@dataclass(frozen=True)
class Result:
    """Counts of a pipeline; `ledger` has the sums of its own ledger, the other counts do not use the product's code."""

    in_topic: int
    rows: int
    unique_rows: int
    ledger: Mapping[str, int]


@dataclass(frozen=True)
class JoinResult:
    """Counts of a join; `ledger` has the sums of its own ledger, the other values do not use the product's code.

    joined: the expected rows.
    rows: the number in the table.
    matched: of those with a right event.
    different: one line per kind of difference between the expected rows and the table's.
    """

    in_left: int
    in_right: int
    joined: Joined
    rows: int
    matched: int
    different: list[str]
    ledger: Mapping[str, int]


def count(demo: Demo, servers: Servers) -> Result:
    """Count the topic's events, the table's rows and its unique keys, and read the ledger's sums."""
    rows, unique = _query(servers, f"SELECT count(), uniqExact({demo.key}) FROM {demo.table} FORMAT TSV").split()
    return Result(
        count_events(servers.brokers, demo.topic.name), int(rows), int(unique), _ledger(demo.pipeline, servers)
    )


def _ledger(pipeline: str, servers: Servers) -> Mapping[str, int]:
    """Return the ledger's counts summed over a pipeline's batches; `waiting` is the last batch's value."""
    sums = ", ".join(f"sum({name}) AS {name}" for name in _COUNTS)
    sums_as_json = _query(
        servers,
        f"SELECT {sums}, argMax(ledger.waiting, ledger.batch_id) AS waiting "
        f"FROM analytics.glassflow_ledger AS ledger WHERE pipeline_id = '{pipeline}' FORMAT JSONEachRow",
    )
    return {name: int(value) for name, value in json.loads(sums_as_json).items()}


def find_mistakes(demo: Demo, result: Result) -> list[str]:
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


def different_flights(servers: Servers) -> list[str]:
    """Compare every value in the table of flights with the data file.

    Return one line when the numbers of rows or columns differ, else a line per column with other values.
    """
    actual = _rows(servers, "analytics.flights", flights()).sort_values(FLIGHT_KEY, ignore_index=True)
    expected = flights().astype(kinds(flights())).sort_values(FLIGHT_KEY, ignore_index=True)
    if actual.shape != expected.shape:
        return [f"analytics.flights has {len(actual):,} rows, the file has {len(expected):,}"]
    different = [name for name in expected.columns if not actual[name].equals(expected[name])]
    return [f"analytics.flights: column {name} differs from the file" for name in different]


def recount(demo: JoinDemo, servers: Servers) -> JoinResult:
    """Join the topics' events again with pandas and compare the expected rows with the table's."""
    left, right = (list(read_events(servers.brokers, topic.name)) for topic in (demo.left, demo.right))
    joined = demo.join(left, right)
    rows = _rows(servers, demo.table, joined.rows)
    matched = int(rows[joined.right_column].notna().sum())
    different = differences(joined, rows)
    return JoinResult(
        in_left=len(left),
        in_right=len(right),
        joined=joined,
        rows=len(rows),
        matched=matched,
        different=different,
        ledger=_ledger(demo.pipeline, servers),
    )


def find_join_mistakes(demo: JoinDemo, result: JoinResult) -> list[str]:
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


def _rows(servers: Servers, table: str, expected: pd.DataFrame) -> pd.DataFrame:
    """Read a ClickHouse table into a frame with the columns and types of the frame `expected`."""
    names = ", ".join(expected.columns)
    text = _query(servers, f"SELECT {names} FROM {table} FORMAT CSVWithNames SETTINGS date_time_output_format = 'iso'")
    return pd.read_csv(io.StringIO(text), na_values=["\\N"], keep_default_na=False, dtype=kinds(expected))


def _query(servers: Servers, sql: str) -> str:
    """Run a query over ClickHouse's HTTP interface and return the response body."""
    request = urllib.request.Request(f"{servers.clickhouse}/?{urllib.parse.urlencode({'query': sql})}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())
