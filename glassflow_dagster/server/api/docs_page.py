"""The page that shows the API's requests: plain HTML from the OpenAPI document, since it must work without internet."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;"
    "padding:0 1rem}table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;"
    "padding:.4rem .6rem;border-bottom:1px solid #8886}code{font-size:.9em;overflow-wrap:anywhere}"
)


def docs_page(openapi: Mapping[str, Any]) -> str:
    """Return the page for an OpenAPI document."""
    sections = "".join(_section(tag, openapi) for tag in _tags(openapi))
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(openapi["info"]["title"])}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head><body><main>'
        f"<h1>{escape(openapi['info']['title'])}</h1><p>{escape(openapi['info']['description'])} The "
        f'<a href="/api/v1/openapi.json">OpenAPI document</a> has the bodies.</p>{sections}</main></body></html>'
    )


def _tags(openapi: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(tag for _, _, operation in _operations(openapi) for tag in operation["tags"][-1:]))


def _operations(openapi: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _section(tag: str, openapi: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{method}</code></td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(operation.get('description', ''))}</td><td>{_parameters(operation)}</td></tr>"
        for method, path, operation in _operations(openapi)
        if operation["tags"][-1] == tag
    )
    head = '<tr><th scope="col">method</th><th scope="col">path</th><th scope="col">does</th><th scope="col">query</th>'
    return f"<h2>{escape(tag)}</h2><table><thead>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _parameters(operation: Mapping[str, Any]) -> str:
    names = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    return " ".join(f"<code>{escape(name)}</code>" for name in names)
