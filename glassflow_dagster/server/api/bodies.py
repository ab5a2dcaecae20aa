"""The bodies of requests: a definition as JSON or YAML, and small objects as models."""

import json
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from glassflow_dagster.definition.definition_text import parse_definition
from glassflow_dagster.definition.problems import BUILT, DefinitionError
from glassflow_dagster.server.api.api_error import bad_request

_DEFINITION = {"type": "object", "description": "A pipeline definition; see docs/reference/keys.md"}
# For OpenAPI: the handlers read these bodies themselves.
DEFINITION_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {name: {"schema": _DEFINITION} for name in ("application/json", "application/yaml")},
    }
}


class Body(BaseModel):
    """A small object; unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid")


class NewName(Body):
    """The name of a pipeline."""

    name: str = Field(max_length=1000)


class Tags(Body):
    """Labels."""

    tags: list[str] = []


class NewMetadata(Body):
    """The labels of a pipeline."""

    metadata: Tags


class NewResources(Body):
    """The resources of a pipeline, as in a definition."""

    pipeline_resources: dict[str, Any]


class RollbackTo(Body):
    """An earlier version."""

    version: int = Field(ge=1)


async def definition_body(request: Request) -> dict[str, Any]:
    """Return the object in a request's body; raises `ApiError`."""
    body = await request.body()
    is_yaml = "yaml" in request.headers.get("content-type", "")
    # In a thread: the largest body takes a second.
    return await run_in_threadpool(_parsed, body, is_yaml=is_yaml)


def _parsed(body: bytes, *, is_yaml: bool) -> dict[str, Any]:
    try:
        text = body.decode()
        parsed = parse_definition(Path(BUILT), text) if is_yaml else json.loads(text, parse_constant=_refuse)
        # A text with half a surrogate pair cannot be written to a file.
        json.dumps(parsed, ensure_ascii=False, default=str).encode()
    except DefinitionError as error:
        raise bad_request("; ".join(problem.text for problem in error.problems)) from None
    except RecursionError:
        raise bad_request("invalid json: is nested too deeply") from None
    except ValueError as error:
        raise bad_request(f"invalid json: {_short(error)}") from None
    if not isinstance(parsed, dict):
        raise bad_request("invalid json: the body is no object")
    return parsed


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _short(error: ValueError) -> str:
    """Return a parser's reason, without the text that it read, which may be a secret."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, line {error.lineno}, column {error.colno}"
    return "it is no UTF-8 text" if isinstance(error, UnicodeError) else str(error)[:200]
