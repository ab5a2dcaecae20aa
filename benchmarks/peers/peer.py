"""The programs that the benchmarks compare this project with: how each is prepared and started."""

import ast
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.events import COLUMNS
from benchmarks.peers.environment import Environment, flink_kafka_jar, glassflow_programs, glassflow_version, python_of
from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS, Task
from benchmarks.pipelines import create_peer_table, glassflow_definition
from benchmarks.stack import Stack
from glassflow_dagster.runtime.java import find_java, java_environment


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
        create_peer_table(stack.client(), task.table)

    @cached_property
    def remarks(self) -> dict[str, str]:
        """Return the peer's version and the sections of its module docstring: guarantee, state, tuning."""
        remarks = self._sections()
        package = remarks.pop("package")
        program = f"from importlib.metadata import version; print(version({package!r}))"
        answer = subprocess.run(
            [str(python_of(self.environment)), "-c", program], capture_output=True, text=True, check=True
        )
        return {"version": f"{package} {answer.stdout.strip()}", **remarks}

    def _sections(self) -> dict[str, str]:
        program = Path(__file__).with_name(f"{self.module}.py").read_text(encoding="utf-8")
        return sections(ast.get_docstring(ast.parse(program)) or "")


@dataclass(frozen=True)
class GlassFlow(Peer):
    """GlassFlow itself, built from its source; it takes the definition of this project's own pipeline.

    columns: field -> its type, and its column's. delay: `max_delay_time`. order_by: the table's sorting key.
    """

    name: str = "GlassFlow"
    module: str = "glassflow"
    columns: Mapping[str, tuple[str, str]] = field(default_factory=lambda: COLUMNS)
    delay: str = f"{BLOCK_SECONDS:g}s"
    order_by: str = "id"

    def variables(self, task: Task, stack: Stack) -> dict[str, str]:
        """Return the peer's environment variables, with the places of its programs and its definition."""
        return {
            **super().variables(task, stack),
            "BENCH_GLASSFLOW_PROGRAMS": str(glassflow_programs()),
            "BENCH_GLASSFLOW_DEFINITION": str(self._definition(task, stack)),
        }

    def prepare(self, task: Task, stack: Stack) -> None:
        """Create the table and write the definition."""
        create_peer_table(stack.client(), task.table, self.columns, self.order_by)
        sink = {"max_batch_size": BLOCK_ROWS, "max_delay_time": self.delay}
        definition = glassflow_definition(stack, task.table, task.topic, self.columns, **sink)
        self._definition(task, stack).write_text(json.dumps(definition), encoding="utf-8")

    @cached_property
    def remarks(self) -> dict[str, str]:
        """Return the versions and the sections of the module docstring."""
        remarks = self._sections()
        package = remarks.pop("package")
        return {"version": f"{package} {glassflow_version()}", **remarks}

    @staticmethod
    def _definition(task: Task, stack: Stack) -> Path:
        return stack.folder / f"{task.table}.json"


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
