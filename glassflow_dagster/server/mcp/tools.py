"""The tools of the MCP server: one for each request of the HTTP API, from its own OpenAPI document.

So a tool has the name, the text and the schema of its request, and a request that is added to the API becomes a tool.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute

from glassflow_dagster.server.api.application import make_api
from glassflow_dagster.server.api.routes import dead_letters, pipelines, service

Schema = dict[str, Any]

# The argument that is a request's body; the others are its parameters.
BODY = "body"
# Answers that are for load balancers and browsers.
_WITHOUT_TOOL = frozenset({route.name for route in service.router.routes if isinstance(route, APIRoute)} - {"streams"})
_BY_PATH = {"/dlq/": "dead_letters", "/kafka/": "kafka", "/clickhouse/": "clickhouse"}
_REF, _DEFINITIONS = "#/components/schemas/", "#/$defs/"


@dataclass(frozen=True)
class ApiTool:
    """A request as a tool.

    places: parameter -> where it stands: path, query or header.
    changes: it is no question.
    """

    name: str
    description: str
    method: str
    path: str
    places: Mapping[str, str]
    schema: Schema
    changes: bool


def api_tools(*, allow_changes: bool) -> dict[str, ApiTool]:
    """Return the tools by their names; without `allow_changes`, only those that change nothing."""
    return {tool.name: tool for tool in _all_tools() if allow_changes or not tool.changes}


def _all_tools() -> Iterator[ApiTool]:
    document = make_api().openapi()
    changing = {
        (method, route.path)
        for router in (pipelines.changing, dead_letters.changing)
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    definitions = _with_local_references(document.get("components", {}).get("schemas", {}))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            function = operation["summary"].lower().replace(" ", "_")
            if function not in _WITHOUT_TOOL:
                yield ApiTool(
                    _name(path, function),
                    operation.get("description", ""),
                    method.upper(),
                    path,
                    {each["name"]: each["in"] for each in operation.get("parameters", ())},
                    _input_schema(operation, definitions),
                    (method.upper(), path) in changing,
                )


def _name(path: str, function: str) -> str:
    """Return a tool's name: that of the request's function, or of its path, where other requests are named alike."""
    for part, prefix in _BY_PATH.items():
        if part in path:
            return f"{prefix}_{path.rpartition('/')[2].replace('-', '_')}"
    return function


def _input_schema(operation: Mapping[str, Any], definitions: Schema) -> Schema:
    """Return the JSON Schema of a tool's arguments."""
    properties: Schema = {}
    required: list[str] = []
    for parameter in operation.get("parameters", ()):
        properties[parameter["name"]] = _with_local_references(parameter["schema"])
        required += [parameter["name"]] if parameter.get("required") else []
    if body := operation.get("requestBody"):
        properties[BODY] = _with_local_references(body["content"]["application/json"]["schema"])
        required += [BODY] if body.get("required") else []
    schema: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {**schema, "$defs": definitions} if _DEFINITIONS in json.dumps(properties) else schema


def _with_local_references(schema: Any) -> Any:
    """Return a schema whose references are to its own definitions, as a tool's schema stands alone."""
    return json.loads(json.dumps(schema).replace(_REF, _DEFINITIONS))
