"""Dagster on a host, whose disk is empty."""

import json
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassflow_dagster.runtime import direct
from tests.cluster.hosts import Host
from tests.support.answering import answers
from tests.support.waiting import wait_until

PORT = 3000
LOCATION = "streams"
_PROJECT = """
from pathlib import Path
import dagster as dg

@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
_SETTINGS = "{telemetry: {enabled: false}, nux: {enabled: false}}"
_START = 'cd "$1"; mkdir home; echo "$2" > home/dagster.yaml; shift 2; exec "$@"'
_SELECTOR = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__"}
_LAUNCH = """
mutation($parameters: ExecutionParams!) { launchRun(executionParams: $parameters) {
    __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
} }
"""
_STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
_CHECKS = """
query { assetNodes { assetKey { path } assetChecksOrError { ... on AssetChecks { checks {
    name executionForLatestMaterialization { status evaluation { description } }
} } } } }
"""
_ENDED = {"SUCCESS", "FAILURE", "CANCELED"}


def write_project(folder: Path, component: str) -> None:
    """Write a Dagster project with one component, and the workspace for it. component: the text of its `defs.yaml`."""
    defs = folder / LOCATION / "defs" / LOCATION
    defs.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{LOCATION}"\n'
    )
    (folder / LOCATION / "definitions.py").write_text(_PROJECT)
    (defs / "defs.yaml").write_text(component)
    module = f"{{module_name: {LOCATION}.definitions, location_name: {LOCATION}}}"
    (folder / "workspace.yaml").write_text(f"load_from: [{{python_module: {module}}}]\n")


@dataclass(frozen=True)
class DagsterHost:
    """A running `dagster dev` on a host."""

    host: Host
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.host.address}:{PORT}"

    def run(self, job: str, config: Mapping[str, Any], seconds: float) -> None:
        """Run a job and wait for its end; raises AssertionError unless it succeeds."""
        parameters = {"selector": {**_SELECTOR, "pipelineName": job}, "runConfigData": config}
        launched = self._ask(_LAUNCH, parameters=parameters)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        run = launched["run"]["id"]
        ended = wait_until(
            lambda: (status := self._ask(_STATUS, id=run)["runOrError"]["status"]) in _ENDED and status,
            f"the run of {job} has ended", seconds, self.log.read_text,
        )  # fmt: skip
        assert ended == "SUCCESS", f"{job}: {ended}\n{self.log.read_text()}"

    def checks(self) -> dict[str, tuple[str, str]]:
        """Return what the asset checks of the newest run found.

        Asset and check -> SUCCEEDED, FAILED and so on, and the description.
        """
        return {
            f"{'/'.join(node['assetKey']['path'])}: {check['name']}": (
                found["status"],
                (found["evaluation"] or {}).get("description") or "",
            )
            for node in self._ask(_CHECKS)["assetNodes"]
            for check in node["assetChecksOrError"].get("checks", [])
            if (found := check["executionForLatestMaterialization"])
        }

    def _ask(self, query: str, **variables: object) -> dict[str, Any]:
        """Return the answer of Dagster's GraphQL server; raises AssertionError for an error."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with direct.opener.open(request, timeout=60) as answer:
            answered = json.load(answer)
        assert "errors" not in answered, answered
        return dict(answered["data"])


def start_dagster(host: Host, project: Path, variables: Mapping[str, str], log: Path) -> DagsterHost:
    """Start `dagster dev` on a host and wait until it answers. project: as `write_project` has written it."""
    home = {"DAGSTER_HOME": str(host.disk / "home"), "DAGSTER_DISABLE_TELEMETRY": "1"}
    program = [str(Path(sys.executable).with_name("dagster")), "dev", "--host", host.address, "--port", str(PORT)]
    workspace = ["-w", str(project / "workspace.yaml")]
    host.start(
        ["bash", "-ec", _START, "dagster", str(host.disk), _SETTINGS, *program, *workspace], {**variables, **home}, log
    )
    dagster = DagsterHost(host, log)
    page = f"{dagster.url}/server_info"
    wait_until(lambda: answers(page), f"Dagster on {host.name} answers", evidence=log.read_text)
    return dagster
