"""A new Dagster project, made by Dagster's own commands, in which only the wheel is installed: no Python is written."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from glassflow_dagster.control.status import stream_status
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.local.ports import free_port
from tests.servers.stack import Stack
from tests.support.sending import send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers
PIPELINE = "glassflow_dagster.PipelineFolder"


class Project:
    """A project in a new folder, with a virtual environment of its own."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "shop"
        self.environment = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.environment)], check=True, timeout=60)
        packages = next(self.environment.glob("lib/python*/site-packages"))
        # The dependencies are those of the tests' environment; what is installed there as editable is not on this path.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(packages)]
        subprocess.run([*pip, str(wheel)], check=True, timeout=120)
        # Dagster's commands start each other by name.
        for script in Path(sysconfig.get_path("scripts")).glob("*dagster*"):
            self._copy(script)
        self._copy(Path(sysconfig.get_path("scripts")) / "dg")

    def _copy(self, script: Path) -> None:
        """Copy the script of a command, which then runs in this environment."""
        _, _, content = script.read_text().partition("\n")
        copy = self.environment / "bin" / script.name
        copy.write_text(f"#!{self.environment}/bin/python\n{content}")
        copy.chmod(0o755)

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of the environment in the project; return its output."""
        done = subprocess.run(
            self.command(*command), cwd=self.folder if self.folder.exists() else self.folder.parent,
            env=self.variables, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command line of a program, in this environment's Python."""
        return [str(self.environment / "bin" / program), *arguments]

    @property
    def variables(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLOW_")}
        home = self.folder.parent / "home"
        home.mkdir(exist_ok=True)
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
        return {
            **inherited,
            "DAGSTER_HOME": str(home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "VIRTUAL_ENV": str(self.environment),
            "PYTHONPATH": str(self.folder / "src"),
            "PATH": f"{self.environment / 'bin'}{os.pathsep}{inherited['PATH']}",
        }

    def component(self, name: str) -> Path:
        return self.folder / "src" / "shop" / "defs" / name / "defs.yaml"

    @contextmanager
    def served(self) -> Iterator["Server"]:
        """Run `dg dev` for the block; return its GraphQL interface."""
        port = free_port()
        log = (self.folder.parent / "dev.log").open("w")
        # Dagster 1.12 always uses the environment that it runs in.
        active = ["--use-active-venv"] if "--use-active-venv" in self.run("dg", "dev", "--help") else []
        command = self.command("dg", "dev", "--port", str(port), *active)
        with subprocess.Popen(
            command, cwd=self.folder, env=self.variables, stdout=log, stderr=log,
            # Tests that a shell runs in the background ignore Ctrl-C, and so would their children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads are forked
        ) as dev:  # fmt: skip
            try:
                server = Server(port)
                wait_until(server.answers, "the webserver answers", evidence=(self.folder.parent / "dev.log").read_text)
                yield server
            finally:
                dev.send_signal(signal.SIGINT)
                dev.wait(60)


class Server:
    """Dagster's webserver."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/graphql"

    def answers(self) -> bool:
        try:
            return bool(self.query("{ version }")["version"])
        except OSError:
            return False

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(self._address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = json.load(answer)
        assert "errors" not in content, content
        data: dict[str, Any] = content["data"]
        return data


@pytest.fixture
def project(tmp_path: Path, wheel: Path) -> Project:
    return Project(tmp_path, wheel)


@pytest.fixture
def topic(stack: Stack) -> str:
    name = f"t{uuid4().hex[:10]}"
    orders = [json.dumps({"order_id": f"o{number % 90}", "amount": number}) for number in range(100)]
    send(stack.kafka, name, orders)
    return name


@pytest.mark.long
def test_five_commands_and_no_python_make_a_project_whose_stream_runs(
    stack: Stack, project: Project, topic: str
) -> None:
    project.run("create-dagster", "project", "shop", "--no-uv-sync")
    assert PIPELINE in project.run("dg", "list", "components")
    url = f"http://default@127.0.0.1:{stack.clickhouse_port}/{topic}"
    for name in ("orders", "copies"):
        project.run(
            "dg", "scaffold", "defs", PIPELINE, name, "--topic", topic, "--brokers", stack.kafka,
            "--clickhouse-url", url, "--pipeline-id", f"{name}_{topic}",
        )  # fmt: skip
    second = yaml.safe_load(project.component("copies").read_text())
    second["attributes"] |= {"key_prefix": "copies", "owners": ["team:data"]}
    project.component("copies").write_text(yaml.safe_dump(second))
    project.run("dg", "check", "yaml")
    project.run("dg", "check", "defs")

    stream = f"orders_{topic}"
    state = project.folder / ".glassflow" / "state"
    try:
        with project.served() as server:
            found = server.query("{ assetNodes { assetKey { path } owners { __typename } hasAssetChecks } }")
            nodes = {"/".join(node["assetKey"]["path"]): node for node in found["assetNodes"]}
            assert set(nodes) == {
                f"{prefix}{name}_{topic}/{asset}"
                for prefix, name in (("", "orders"), ("copies/", "copies"))
                for asset in (f"raw_{topic}", f"deduplicated_{topic}", topic)
            }
            assert nodes[f"orders_{topic}/{topic}"]["hasAssetChecks"]
            assert len(nodes[f"copies/copies_{topic}/{topic}"]["owners"]) == 1
            assert sensors(server) == {
                f"{name}__{sensor}": "RUNNING"
                for name in ("orders", "copies")
                for sensor in ("observer", "health_checks", "alerts", "run_failures")
            }
            project.run("dg", "launch", "--assets", f"key:{stream}/{topic}")
            wait_until(lambda: rows(stack, topic) == 90, "the rows are in the table")
            assert stream_status(state, stream).wanted
    finally:
        stop_driver(state, stream)


def sensors(server: Server) -> dict[str, str]:
    """Return the sensors of the code location, with their states."""
    text = (
        "{ repositoriesOrError { ... on RepositoryConnection { nodes { sensors { name sensorState { status } } } } } }"
    )
    [repository] = server.query(text)["repositoriesOrError"]["nodes"]
    return {sensor["name"]: sensor["sensorState"]["status"] for sensor in repository["sensors"]}


def rows(stack: Stack, database: str) -> int:
    url = f"{stack.clickhouse.replace('default:@', '')}/?query=SELECT+count()+FROM+{database}.{database}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.read())
    except urllib.error.HTTPError:
        return 0
