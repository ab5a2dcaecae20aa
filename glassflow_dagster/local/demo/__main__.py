"""`make demo`: runs deduplication and join pipelines on the embedded stack and verifies their results independently.

Events are sent only once: a second run finds them in the topics and must find the same rows in the tables.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.demo.check import (
    JoinResult,
    Result,
    Servers,
    count,
    different_flights,
    find_join_mistakes,
    find_mistakes,
    recount,
)
from glassflow_dagster.local.demo.pipelines import Demo, JoinDemo, Topic, demos, join_demos
from glassflow_dagster.local.demo.produce import count_events, create_topic, send
from glassflow_dagster.local.stack import DEFAULT_CLICKHOUSE_PORT, DEFAULT_KAFKA_PORT, ports_beside_others, status, up

_DATA = Path(".glassflow")
_SEED = 7


console = Console(stderr=True)


def main() -> int:
    """Run the demo; return 0 when every count has the expected value."""
    try:
        return _demo()
    except GlassflowError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1
    finally:
        _say_what_goes_on()


def _demo() -> int:
    """Start the stack, run and verify all pipelines, print the counts; return 0 without mistakes, else 1."""
    with _compiling():
        console.rule("Kafka and ClickHouse, embedded")
        servers = _start_servers()
        console.rule("Events")
        for topic in _topics():
            _send(topic, servers)
    mistakes: list[str] = []
    results, join_results = [], []
    for demo in demos():
        _run(demo.pipeline, servers)
        result = count(demo, servers)
        results.append((demo, result))
        mistakes += find_mistakes(demo, result)
    mistakes += different_flights(servers)
    for join_demo in join_demos():
        _run(join_demo.pipeline, servers)
        join_result = recount(join_demo, servers)
        join_results.append((join_demo, join_result))
        mistakes += find_join_mistakes(join_demo, join_result)
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
            "wait for newer flights and weather."
        )
        console.print("Look at it in Dagster: make dev")
    return 1 if mistakes else 0


@contextmanager
def _compiling() -> Iterator[None]:
    """Compile the Scala sources beside the block, unless the cache has them; afterwards wait for the compiler.

    Then a warm-up run begins, which writes Java's class data archive while the first pipelines run without it.
    """
    module = "glassflow_dagster.stream.scala.build"
    with subprocess.Popen([sys.executable, "-m", module], stdout=sys.stderr) as compiler:
        yield
    if compiler.returncode:
        raise GlassflowError("the Scala sources were not compiled; the lines above say why")
    module = "glassflow_dagster.stream.spark.cds_archive"
    subprocess.run([sys.executable, "-m", module, "--background", "--low-priority"], stdout=sys.stderr, check=True)


def _start_servers() -> Servers:
    """Start the embedded Kafka and ClickHouse on the ports of the environment, or on ports that are free."""
    kafka, clickhouse = ports_beside_others(_DATA, _print)
    up(_DATA, kafka, clickhouse, _print)
    return Servers(f"127.0.0.1:{kafka}", f"http://127.0.0.1:{clickhouse}")


def _say_what_goes_on() -> None:
    """Print which servers run on after the demo, how other commands reach them, and how to stop them."""
    servers = status(_DATA)
    running = [server for server in servers.servers if server.running]
    if not running:
        return
    names = " and ".join(f"{server.name} ({server.address})" for server in running)
    _print(f"{names} run on. Stop them with: {Path(sys.executable).with_name('glassflow-dagster')} stack down")
    if (servers.kafka.port, servers.clickhouse.port) != (DEFAULT_KAFKA_PORT, DEFAULT_CLICKHOUSE_PORT):
        _print(
            f"Other commands reach them after: export GLASSFLOW_KAFKA_BROKERS={servers.kafka.address} "
            f"GLASSFLOW_CLICKHOUSE_URL=http://{servers.clickhouse.address}"
        )


def _print(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _topics() -> list[Topic]:
    """Return the topics of all pipelines."""
    return [
        *(demo.topic for demo in demos()),
        *(topic for join_demo in join_demos() for topic in (join_demo.left, join_demo.right)),
    ]


def _send(topic: Topic, servers: Servers) -> None:
    """Send a topic's events unless it has all of them; raises when it holds another number of events."""
    create_topic(servers.brokers, topic.name)
    present = count_events(servers.brokers, topic.name)
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
        send(servers.brokers, topic.name, topic.events(), _SEED, lambda count: progress.update(task, completed=count))


def _run(pipeline: str, servers: Servers) -> None:
    """Run a pipeline in a process of its own until it has read all records; raises when it fails."""
    console.rule(f"Pipeline {pipeline}")
    environment = {
        **os.environ,
        "GLASSFLOW_KAFKA_BROKERS": servers.brokers,
        "GLASSFLOW_CLICKHOUSE_URL": servers.clickhouse,
    }
    command = [sys.executable, "-m", "glassflow_dagster", "run", f"pipelines/{pipeline}.yaml", "--until-caught-up"]
    completed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if completed.returncode != 0:
        raise GlassflowError(f"pipeline {pipeline} did not finish; the lines above say why")


def _print_demos(results: list[tuple[Demo, Result]]) -> None:
    """Print the counts of the pipelines with one topic."""
    table_rows: list[tuple[str, Callable[[Demo, Result], int]]] = [
        ("events in Kafka (counted again)", lambda _, r: r.in_topic),
        ("read", lambda _, r: r.ledger["read"]),
        ("duplicates dropped", lambda _, r: r.ledger["duplicates"]),
        ("dead letters", lambda _, r: r.ledger["dead_letters"]),
        ("written", lambda _, r: r.ledger["written"]),
        ("unique events sent (counted again)", lambda d, _: d.unique),
        ("rows in ClickHouse (counted again)", lambda _, r: r.rows),
        ("residual duplicates (counted again)", lambda _, r: r.rows - r.unique_rows),
    ]
    figures = {name: [value(demo, result) for demo, result in results] for name, value in table_rows}
    _print_figures("What was sent, and what arrived", [demo.pipeline for demo, _ in results], figures)


def _print_joins(results: list[tuple[JoinDemo, JoinResult]]) -> None:
    """Print the counts of the joins."""
    table_rows: list[tuple[str, Callable[[JoinResult], int]]] = [
        ("left events in Kafka (counted again)", lambda r: r.in_left),
        ("right events in Kafka (counted again)", lambda r: r.in_right),
        ("read", lambda r: r.ledger["read"]),
        ("duplicates dropped", lambda r: r.ledger["duplicates"]),
        ("dead letters", lambda r: r.ledger["dead_letters"]),
        ("late", lambda r: r.ledger["late"]),
        ("matched", lambda r: r.ledger["matched"]),
        ("unmatched", lambda r: r.ledger["unmatched"]),
        ("waiting", lambda r: r.ledger["waiting"]),
        ("written", lambda r: r.ledger["written"]),
        ("rows expected (computed again)", lambda r: int(r.joined.decided.sum())),
        ("rows in ClickHouse (counted again)", lambda r: r.rows),
        ("of them without a match (counted again)", lambda r: r.rows - r.matched),
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
