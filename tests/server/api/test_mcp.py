"""The API as tools of an agent: by the official client, in this process and over standard input and output."""

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters

from glassflow_dagster.local.ports import free_port
from glassflow_dagster.server.mcp.api_client import ApiClient
from glassflow_dagster.server.mcp.server import build_server
from glassflow_dagster.server.mcp.tools import api_tools
from tests.server.api.conftest import SECRET, Api, deduplicating

# What it may be asked without --allow-changes; whatever else the API has changes something.
QUESTIONS = {
    "list_pipelines", "get_pipeline", "get_health", "get_metrics", "get_resources", "get_resources_validation",
    "get_history", "get_version", "migrate", "validate", "dead_letters_state", "dead_letters_list",
    "kafka_test_connection", "kafka_topics", "kafka_events", "clickhouse_test_connection", "clickhouse_databases",
    "clickhouse_tables", "clickhouse_columns", "infer", "validate_filter", "evaluate_filter", "evaluate_transform",
    "preview_definition", "streams",
}  # fmt: skip


def talk(server: Any, conversation: Callable[[Client], Awaitable[None]]) -> None:
    """Let a client talk to a server."""

    async def run() -> None:
        async with Client(server) as client:
            await conversation(client)

    anyio.run(run)


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool that answers, and return its answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that refuses, and return the text."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    return str(result.content[0].text)  # type: ignore[union-attr]


def test_an_agent_may_ask_and_change_nothing_unless_it_is_allowed(api: Api) -> None:
    api.write(deduplicating())

    async def conversation(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == QUESTIONS
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert [entry["pipeline_id"] for entry in await ask(client, "list_pipelines")] == ["orders-clean"]
        shown = await client.call_tool("get_pipeline", {"pipeline_id": "orders-clean"})
        assert SECRET not in str(shown.content)
        assert "it may need --allow-changes" in await refused(client, "delete_pipeline", pipeline_id="orders-clean")

    talk(build_server(ApiClient(api.url), allow_changes=False), conversation)
    assert (api.folder / "orders-clean.yaml").exists()


def test_with_permission_it_makes_and_removes_a_pipeline(api: Api) -> None:
    async def conversation(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) > QUESTIONS
        changing = {name for name, tool in tools.items() if not (tool.annotations and tool.annotations.read_only_hint)}
        assert changing == set(tools) - QUESTIONS
        await ask(client, "create_pipeline", body=deduplicating())
        assert [entry["pipeline_id"] for entry in await ask(client, "list_pipelines")] == ["orders-clean"]
        invalid = {**deduplicating("other"), "sink": {}}
        assert "sink" in await refused(client, "validate", body=invalid)
        assert "is not served" in await refused(client, "get_health", pipeline_id="../orders-clean")

    talk(build_server(ApiClient(api.url), allow_changes=True), conversation)
    assert (api.folder / "orders-clean.yaml").exists()


def test_the_schemas_of_the_tools_stand_alone() -> None:
    for tool in api_tools(allow_changes=True).values():
        Draft202012Validator.check_schema(tool.schema)
        assert "#/components" not in json.dumps(tool.schema)
        assert tool.description, tool.name


def test_a_token_is_sent_and_a_wrong_one_is_told(serve: Callable[..., Api]) -> None:
    api = serve(token="open sesame")

    async def allowed(client: Client) -> None:
        assert await ask(client, "list_pipelines") == []

    async def denied(client: Client) -> None:
        assert "401" in await refused(client, "list_pipelines")

    talk(build_server(ApiClient(api.url, "open sesame"), allow_changes=False), allowed)
    talk(build_server(ApiClient(api.url), allow_changes=False), denied)


def test_an_api_that_is_away_is_told() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    async def conversation(client: Client) -> None:
        text = await refused(client, "list_pipelines")
        assert text.startswith(f"{url} cannot be reached")
        assert "start it: glassflow-dagster api" in text

    talk(build_server(ApiClient(url), allow_changes=False), conversation)


@pytest.mark.parametrize("with_token", [False, True])
def test_the_command_serves_on_standard_input_and_output(
    serve: Callable[..., Api], tmp_path: Path, with_token: bool
) -> None:
    api = serve(token="open sesame" if with_token else "")
    (tmp_path / "token").write_text("open sesame\n")
    arguments = ["-m", "glassflow_dagster", "mcp", "--api-url", api.url]
    arguments += ["--token-file", str(tmp_path / "token")] if with_token else []

    async def conversation(client: Client) -> None:
        assert await ask(client, "list_pipelines") == []

    talk(StdioServerParameters(command=sys.executable, args=arguments), conversation)
