"""The MCP server: offers the requests of the HTTP API to an agent, over standard input and output."""

from collections.abc import Mapping
from importlib.metadata import version

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from glassflow_dagster.server.mcp.api_client import ApiClient
from glassflow_dagster.server.mcp.tools import ApiTool, api_tools

_INSTRUCTIONS = (
    "Pipelines from Kafka to ClickHouse that remove duplicates, join, filter and transform. Secrets in definitions are "
    "masked; leave the masks in what you send. A pipeline must be stopped before its definition is edited."
)
_READ_ONLY = " Nothing can be changed; the user may start this server with --allow-changes."


def build_server(client: ApiClient, *, allow_changes: bool) -> Server[None]:
    """Return the server. allow_changes: also offer the tools that change something."""
    tools = api_tools(allow_changes=allow_changes)

    async def list_tools(
        _context: ServerRequestContext[None], _parameters: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in tools.values()])

    async def call_tool(
        _context: ServerRequestContext[None], parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await _call(client, tools, parameters)

    return Server(
        "glassflow-dagster",
        version=version("glassflow-dagster"),
        instructions=_INSTRUCTIONS + ("" if allow_changes else _READ_ONLY),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve(client: ApiClient, *, allow_changes: bool) -> None:
    """Serve an agent on standard input and output until it closes them."""
    anyio.run(_serve, build_server(client, allow_changes=allow_changes))


async def _serve(server: Server[None]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _call(
    client: ApiClient, tools: Mapping[str, ApiTool], parameters: types.CallToolRequestParams
) -> types.CallToolResult:
    """Return the API's answer; an error where there is no such tool, or the API refuses."""
    tool = tools.get(parameters.name)
    if tool is None:
        text = f"there is no tool {parameters.name!r}; it may need --allow-changes"
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
    # In a thread, as the request may take as long as the servers behind the API.
    answer = await anyio.to_thread.run_sync(client.send, tool, parameters.arguments or {})
    return types.CallToolResult(content=[types.TextContent(type="text", text=answer.text)], is_error=answer.is_error)


def _described(tool: ApiTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(read_only_hint=not tool.changes),
    )
