"""Deduplication from Kafka into ClickHouse, compared with peers: one topic, one broker, one ClickHouse, one machine.

The topic holds seeded events of 190 bytes, a tenth of them twice, when a peer starts with an empty table and empty
state; `benchmarks.steady_state` says how it is measured. Peers run alternately, so that a gradual slowdown of the
machine affects all of them.

With `--kill` each run kills the peer's processes (SIGKILL) when half of the rows are visible, and starts it again: rows
lost or duplicated show what its guarantee is worth.

    make bench-peers        or: python -m benchmarks.peers --events 500000 --runs 1 --only baseline quix
"""

import ast
import os
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks import results
from benchmarks.events import COLUMNS, DUPLICATES, SEED, distinct, fill_topic
from benchmarks.peers.environment import Environment, flink_kafka_jar, python_of
from benchmarks.peers.task import Task
from benchmarks.results import Runs, turns
from benchmarks.stack import Stack, running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.demo.produce import PARTITIONS
from glassflow_dagster.runtime.java import find_java, java_environment

TOPIC = "events"


@dataclass(frozen=True)
class Peer:
    """A peer: `module` is its file in this folder, `environment` the virtual environment it runs in."""

    name: str
    module: str
    environment: Environment = "requirements"

    def command(self, _task: Task, _stack: Stack) -> list[str]:
        """Return the command that starts the peer."""
        return [str(python_of(self.environment)), "-m", f"benchmarks.peers.{self.module}"]

    def variables(self, task: Task, _stack: Stack) -> dict[str, str]:
        """Return the peer's environment variables."""
        variables = {**os.environ, **task.to_environment(), "PYTHONPATH": str(Path.cwd())}
        if self.environment == "requirements-flink":
            variables |= {**java_environment(find_java()), "BENCH_FLINK_JAR": str(flink_kafka_jar())}
        return variables

    def prepare(self, task: Task, stack: Stack) -> None:
        """Create the peer's table."""
        columns = ", ".join(f"{name} {column}" for name, (_, column) in COLUMNS.items())
        stack.client().command(f"CREATE TABLE {task.table} ({columns}) ENGINE = MergeTree ORDER BY id")

    @cached_property
    def remarks(self) -> dict[str, str]:
        """Return the peer's version and the sections of its module docstring: guarantee, state, tuning."""
        module_docstring = ast.get_docstring(
            ast.parse(Path(__file__).with_name(f"{self.module}.py").read_text(encoding="utf-8"))
        )
        remarks = sections(module_docstring or "")
        package = remarks.pop("package")
        program = f"from importlib.metadata import version; print(version({package!r}))"
        answer = subprocess.run(
            [str(python_of(self.environment)), "-c", program], capture_output=True, text=True, check=True
        )
        return {"version": f"{package} {answer.stdout.strip()}", **remarks}


PRODUCT = ProductCase("glassflow-dagster")
PRODUCT_REMARKS = {
    "guarantee": "exactly once into ClickHouse, also after a crash; the ledger accounts for every record",
    "state": "RocksDB, checkpointed with each batch; a key is forgotten after 24 hours",
}
PEERS = {
    "baseline": Peer("baseline consumer", "baseline"),
    "bytewax": Peer("Bytewax", "bytewax_flow"),
    "pathway": Peer("Pathway", "pathway_flow"),
    "quix": Peer("Quix Streams", "quix"),
    "flink": Peer("PyFlink", "flink", "requirements-flink"),
}


def sections(docstring: str) -> dict[str, str]:
    """Split a docstring into its sections ("Name: text"); return them by lower-case name, each on one line.

    The first line names the peer; the text after its colon is the section `how`.
    """
    lines = docstring.splitlines()
    name, found = "how", {"how": lines[0].partition(": ")[2]}
    for line in lines[1:]:
        start, colon, rest = line.partition(": ")
        if colon and start.isalpha():
            name = start.lower()
            found[name] = rest.strip()
        elif line.strip():
            found[name] += " " + line.strip()
    return found


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("peers")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="+", choices=("own", *PEERS), default=["own", *PEERS], help="these alone")
    parser.add_argument("--kill", action="store_true", help="kill each half way; count what is lost or doubled")
    arguments = parser.parse_args()
    chosen: dict[str, Peer | ProductCase] = {name: PEERS.get(name, PRODUCT) for name in arguments.only}
    runs = Runs()
    for consumer in chosen.values():
        # Creates the environments now, so that their creation does not count as a peer's start.
        runs.remark(consumer.name, **(consumer.remarks if isinstance(consumer, Peer) else PRODUCT_REMARKS))
    with running_stack() as stack:
        fill_topic(stack, TOPIC, arguments.events)
        keys = distinct(arguments.events)
        expected = Expected(arguments.events, keys, keys)
        for turn, name in turns(list(chosen), arguments.runs):
            task = new_task(stack, TOPIC, f"{name}_{turn}")
            run = Run(chosen[name], stack, task, expected)
            runs.attempt(chosen[name].name, run.kill if arguments.kill else run.measure)
            run.drop()
    parameters = {"events": arguments.events, "keys": keys, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(
        arguments.results, "peers_killed" if arguments.kill else "peers", {**parameters, "partitions": PARTITIONS}
    )


if __name__ == "__main__":
    main()
