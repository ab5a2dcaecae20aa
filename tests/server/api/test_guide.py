"""The guide's commands run, in their order, and its tables have what the API has."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.server.api.conftest import Api, deduplicating
from tests.server.api.test_sdk import Flow, event
from tests.servers.stack import Stack
from tests.support import definition as v3

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "http.md").read_text()
ADDRESS = "http://127.0.0.1:8081"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def commands() -> Iterator[str]:
    """Yield the commands of the guide that send something, in order."""
    for block in blocks("sh"):
        yield from (line for line in block.splitlines() if line.startswith("curl "))


class Curl:
    """Sends what a command line of curl does."""

    def __init__(self, api: Api, folder: Path, replaced: dict[str, str]) -> None:
        self._api = api
        self._folder = folder
        self._replaced = replaced
        self.etag = ""

    def run(self, command: str) -> httpx.Response:
        for written, own in {ADDRESS: self._api.url, "ETAG": self.etag.strip('"'), **self._replaced}.items():
            command = command.replace(written, own)
        arguments = iter(shlex.split(command)[1:])
        headers: dict[str, str] = {}
        method, url, body, output = "", "", None, None
        for argument in arguments:
            match argument:
                case "-s":
                    pass
                case "-X":
                    method = next(arguments)
                case "-H":
                    name, _, value = next(arguments).partition(": ")
                    headers[name] = value
                case "-d":
                    text = next(arguments)
                    body = (self._folder / text[1:]).read_bytes() if text.startswith("@") else text.encode()
                case "-o":
                    output = self._folder / next(arguments)
                case "-D":
                    next(arguments)
                case _:
                    assert argument.startswith(self._api.url), argument
                    url = argument
        answer = httpx.request(
            method or ("GET" if body is None else "POST"), url, content=body, headers=headers, timeout=60
        )
        self.etag = answer.headers.get("etag", self.etag)
        if output:
            output.write_bytes(answer.content)
        return answer


@pytest.mark.timeout(900)
@pytest.mark.long
def test_the_commands_of_the_guide_run(
    serve: Callable[..., Api], stack: Stack, sdk: SimpleNamespace, tmp_path: Path
) -> None:
    assert sdk.etl
    api, flow = serve(), Flow(stack)
    own = {"127.0.0.1:9092": stack.kafka, '"topic": "payments"': f'"topic": "{flow.name}"'}
    curl = Curl(api, tmp_path, own)
    flow.send(event("a", 1), b"no json")
    (tmp_path / "payments.json").write_text(json.dumps({**flow.definition, "pipeline_id": "payments"}))
    # What the pipeline is before a command, where it has to be something.
    before = {"/metrics": "Running", "-X POST": "Running", "/payments -D": "Stopped", "/history": "Stopped"}
    codes = []
    for command in commands():
        for part, status in before.items():
            if part in command:
                api.wait_for("payments", status)
        if "/history" in command:
            api.wait_for("payments", "Stopped")
        answer = curl.run(command)
        assert answer.status_code < 300, (command, answer.text)
        codes.append(answer.status_code)
        if command.endswith("-d @edited.json"):
            api.wait_for("payments", "Running")
            [script] = blocks("python")
            exec(script.replace(ADDRESS, api.url), {})  # noqa: S102 - the guide's own
        if "rollback" in command:
            api.wait_for("payments", "Running")
    assert codes.count(202) == 1
    assert api.post("/api/v1/pipeline/payments/stop").status_code == 200
    api.wait_for("payments", "Stopped")
    assert flow.rows() == [("a", 1)]


def test_the_guide_lists_every_request(api: Api) -> None:
    written = re.sub(r"`\.\.\./(\w+)/([\w-]+)`", r"`/api/v1/\1/\2`", GUIDE)
    written = re.sub(r"`\.\.\./([\w-]+)`", r"`POST /api/v1/clickhouse/\1`", written)
    named = set(re.findall(r"`(?:GET |POST |PATCH |PUT |DELETE )?(/[\w/.-]*)`", written))
    full = {name if name.startswith("/api") else f"/api/v1/pipeline{name}".rstrip("/") for name in named}
    served = {
        path.replace("{pipeline_id}", "ID").replace("{version}", "N")
        for path in api.get("/api/v1/openapi.json").json()["paths"]
    }
    assert served - full == {"/api/v1/platform", "/api/v1/pipeline/ID/resources/validation"}
    assert {name for name in full if name.startswith("/api/v1/pipeline/ID")} - served == set()


def test_the_guide_shows_an_error_as_it_is(api: Api) -> None:
    [text] = blocks("json")
    definition = deduplicating()
    del definition["sink"]["table"]
    answer: dict[str, Any] = api.post("/api/v1/pipeline", definition).json()
    assert answer == json.loads(text)


def test_a_definition_of_the_readme_can_be_read_by_the_sdk_without_decimals(sdk: SimpleNamespace) -> None:
    definition = deduplicating()
    definition["sink"]["mapping"].append(v3.mapping("amount", "Decimal(18, 2)", "price"))
    with pytest.raises(ValueError, match="column_type"):
        sdk.etl.PipelineConfig.model_validate(definition)
