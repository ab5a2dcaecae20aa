"""A Dagster project with two components and a dbt project, as docs/guides/dagster-project.md describes it.

`screenshots.py` shows it. It is made in a temporary folder by Dagster's own commands, with Kafka and ClickHouse beside
it, and its streams run while it is shown.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from confluent_kafka import Producer

COMPONENT = "glassflow_dagster.PipelineFolder"
EVENTS = 1000
_DBT_PROJECT = Path(__file__).parents[1] / "tests" / "orchestration" / "component" / "dbt_project"
_BIN = Path(sys.executable).parent
# No model is run, so dbt itself is not needed.
_MODELS = '''"""The models of the dbt project."""

from pathlib import Path

import dagster as dg
from dagster_dbt import DbtCliResource, dbt_assets


@dbt_assets(manifest=Path(__file__).parents[3] / "dbt_project" / "target" / "manifest.json")
def models(context: dg.AssetExecutionContext, dbt: DbtCliResource):
    yield from dbt.cli(["build"], context=context).stream()


defs = dg.Definitions(assets=[models], resources={"dbt": object()})
'''


@contextmanager
def example_project(kafka_port: int, clickhouse_port: int) -> Iterator["ExampleProject"]:
    """Start the servers and make the project for the block; afterwards stop its streams and the servers."""
    with TemporaryDirectory() as folder:
        project = ExampleProject(Path(folder), kafka_port, clickhouse_port)
        ports = ["--kafka-port", str(kafka_port), "--clickhouse-port", str(clickhouse_port)]
        project.run("glassflow-dagster", "stack", "up", *ports)
        try:
            project.make()
            yield project
        finally:
            for pipeline in ("orders", "payments"):
                project.run("glassflow-dagster", "stop", pipeline, check=False)
            project.run("glassflow-dagster", "stack", "down")


class ExampleProject:
    """The project `shop` in a folder."""

    def __init__(self, folder: Path, kafka_port: int, clickhouse_port: int) -> None:
        self._folder = folder
        self._kafka = f"127.0.0.1:{kafka_port}"
        self._clickhouse = f"http://default@127.0.0.1:{clickhouse_port}/shop"
        home = folder / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLOW_")}
        self._environment = {
            **inherited,
            "GLASSFLOW_STATE": str(folder / "state"),
            "DAGSTER_HOME": str(home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "VIRTUAL_ENV": str(_BIN.parent),
            "PYTHONPATH": str(folder / "shop" / "src"),
            "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
        }

    @property
    def _project(self) -> Path:
        return self._folder / "shop"

    @property
    def _defs(self) -> Path:
        return self._project / "src" / "shop" / "defs"

    def make(self) -> None:
        """Send events to two topics, scaffold a component for each, and add the dbt project."""
        self._send("orders", "id", "total")
        self._send("payments", "payment_id", "amount")
        self.run("create-dagster", "project", "shop", "--no-uv-sync")
        for topic in ("orders", "payments"):
            self.run(
                "dg", "scaffold", "defs", COMPONENT, topic, "--topic", topic,
                "--brokers", self._kafka, "--clickhouse-url", self._clickhouse,
            )  # fmt: skip
        self._set("orders", {"table_key_prefix": "shop"})
        self._set("payments", {"key_prefix": "finance", "owners": ["team:finance"]})
        definition = self._defs / "orders" / "orders.yaml"
        definition.write_text(definition.read_text().replace("  table: orders\n", "  table: orders_clean\n"))
        shutil.copytree(_DBT_PROJECT, self._project / "dbt_project")
        (self._defs / "models.py").write_text(_MODELS)

    @contextmanager
    def served(self, port: int) -> Iterator["subprocess.Popen[bytes]"]:
        """Run `dg dev` for the block."""
        command = [str(_BIN / "dg"), "dev", "--port", str(port), "--use-active-venv"]
        with subprocess.Popen(command, cwd=self._project, env=self._environment) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGINT)

    def materialize(self) -> None:
        """Launch the streams, and run the checks."""
        for component in ("orders", "payments"):
            self.run("dg", "launch", "--job", f"{component}__health_check")

    def run(self, program: str, *arguments: str, check: bool = True) -> None:
        """Run a command of Dagster's in the project, another one beside it."""
        folder = self._project if program == "dg" else self._folder
        subprocess.run([str(_BIN / program), *arguments], cwd=folder, env=self._environment, check=check)

    def _set(self, component: str, attributes: dict[str, object]) -> None:
        """Add attributes to a component."""
        file = self._defs / component / "defs.yaml"
        content = yaml.safe_load(file.read_text())
        content["attributes"] |= attributes
        file.write_text(yaml.safe_dump(content, sort_keys=False))

    def _send(self, topic: str, key: str, amount: str) -> None:
        """Send events to a topic, a tenth of them twice."""
        producer = Producer({"bootstrap.servers": self._kafka})
        for number in range(EVENTS):
            for _ in range(2 if number % 10 == 0 else 1):
                producer.produce(topic, json.dumps({key: f"{topic[0]}-{number:04}", amount: number + 0.5}))
        if producer.flush(30):
            raise SystemExit(f"Kafka at {self._kafka} did not accept the events of {topic}")
