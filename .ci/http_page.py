"""The page of the HTTP API's requests, made of its OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any

from glassflow_dagster.server.api.application import make_api

_HEADINGS = {
    "pipelines": "Pipelines",
    "dead letters": "Dead letters",
    "servers": "Servers",
    "evaluation": "Expressions and previews",
    "service": "The service",
}
_INTRODUCTION = """
# HTTP API

The requests that [`glassflow-dagster api`](../guides/http.md) answers. A body is JSON; a definition may be YAML, too.
Required keys of a body are marked with `*`. Where a query parameter is listed, it may be left out. `If-Match` takes the
`ETag` of the definition that is to be changed. The [guide](../guides/http.md#errors) has the errors.
"""


def http_page(head: str) -> str:
    """Return the page."""
    document = make_api().openapi()
    lines = [head.rstrip(), _INTRODUCTION.rstrip()]
    for tag, heading in _HEADINGS.items():
        lines += ["", f"## {heading}", "", "| request | does | query | body |", "|---|---|---|---|"]
        lines += [_row(*each, document) for each in _operations(document) if each[2]["tags"][-1] == tag]
    return "\n".join(lines) + "\n"


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _row(method: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    parameters = operation.get("parameters", ())
    query = [f"`{each['name']}`" for each in parameters if each["in"] == "query"]
    query += ["header `If-Match`" for each in parameters if each["in"] == "header"]
    does = operation["description"].rstrip(".")
    return f"| `{method} {path}` | {does} | {', '.join(query)} | {', '.join(_keys(operation, document))} |"


def _keys(operation: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of an operation's body."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if "$ref" not in schema:
        if schema:
            yield "[a definition](keys.md)"
        return
    model = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for name in model["properties"]:
        yield f"`{name}`{'*' if name in model.get('required', ()) else ''}"
