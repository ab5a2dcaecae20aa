"""Sends the requests of tools to the HTTP API."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request

from glassflow_dagster.runtime import direct
from glassflow_dagster.server.mcp.tools import BODY, ApiTool

# A server behind the API may take two minutes not to answer.
_ANSWER_SECONDS = 150.0


@dataclass(frozen=True)
class Answer:
    """The text of an answer, which is JSON unless the API does not answer; whether it is an error."""

    text: str
    is_error: bool


@dataclass(frozen=True)
class ApiClient:
    """The API at a URL. token: that it asks for; '' for none."""

    url: str
    token: str = ""

    def send(self, tool: ApiTool, arguments: Mapping[str, Any]) -> Answer:
        """Send the request of a tool and return the answer; an API that cannot be reached is an error, too."""
        try:
            with direct.opener.open(self._request(tool, arguments), timeout=_ANSWER_SECONDS) as response:
                return Answer(response.read().decode() or "{}", is_error=False)
        except HTTPError as error:
            return Answer(error.read().decode(errors="replace") or str(error), is_error=True)
        except OSError as error:
            return Answer(
                f"{self.url} cannot be reached ({error}); start it: glassflow-dagster api, or name it with --api-url",
                is_error=True,
            )

    def _request(self, tool: ApiTool, arguments: Mapping[str, Any]) -> Request:
        given = {name: value for name, value in arguments.items() if value is not None}
        path, query = tool.path, {}
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        for name, place in tool.places.items():
            if name not in given:
                continue
            if place == "path":
                # Of an id nothing may lead to another path.
                path = path.replace(f"{{{name}}}", quote(str(given[name]), safe=""))
            elif place == "query":
                query[name] = given[name]
            else:
                headers[name] = str(given[name])
        target = f"{self.url.rstrip('/')}{path}" + (f"?{urlencode(query)}" if query else "")
        body = json.dumps(given[BODY]).encode() if BODY in given else None
        return Request(target, body, headers, method=tool.method)  # noqa: S310 - the user's own URL
