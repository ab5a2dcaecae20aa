"""A schema registry for tests: the part of Confluent's HTTP interface that serializers and this project use.

`make test-registry` runs the tests against a real one.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

UNKNOWN_SCHEMA, UNKNOWN_VERSION, UNKNOWN_PATH = 40403, 40402, 404


class Registry:
    """The schemas of a registry, what was asked of it, and how it fails.

    failures: answers (status and body) that come first, one a request. authorization: the header that it demands.
    texts: by compiled schemas of Protobuf's in base64, which a real registry turns into text by itself.
    """

    def __init__(self) -> None:
        self.url = ""
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.failures: list[tuple[int, str]] = []
        self.authorization: str | None = None
        self.texts: dict[str, str] = {}

    def register(self, subject: str, schema: Any, references: Any = (), kind: str = "AVRO") -> int:
        """Register a schema as a subject's next version, and return its id."""
        content = {"schema": schema if isinstance(schema, str) else json.dumps(schema), "schemaType": kind}
        if references:
            content["references"] = list(references)
        known = [entry for entry in self.schemas if entry["content"] == content]
        if not known:
            guid = str(uuid.UUID(int=len(self.schemas) + 1))
            known = [{"content": content, "id": len(self.schemas) + 1, "guid": guid}]
            self.schemas += known
        number: int = known[0]["id"]
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: bytes, authorization: str | None) -> tuple[int, str]:
        """Return status and body of the answer to a request."""
        self.requests.append(path)
        if self.failures:
            return self.failures.pop(0)
        if self.authorization is not None and authorization != self.authorization:
            return 401, json.dumps({"error_code": 401, "message": "Unauthorized"})
        parts = path.strip("/").split("/")
        return self._post(parts, json.loads(body)) if method == "POST" else self._get(parts)

    def _post(self, parts: list[str], request: dict[str, Any]) -> tuple[int, str]:
        kind = request.get("schemaType", "AVRO")
        schema = self.texts.get(request["schema"], request["schema"])
        number = self.register(parts[1], schema, request.get("references") or (), kind)
        version = self.subjects[parts[1]].index(number) + 1
        return 200, json.dumps({**self._content(number), "subject": parts[1], "version": version})

    def _get(self, parts: list[str]) -> tuple[int, str]:
        match parts:
            case ["schemas", "ids", number]:
                return self._schema(int(number))
            case ["schemas", "guids", guid]:
                found = [entry["id"] for entry in self.schemas if entry["guid"] == guid]
                return self._schema(found[0] if found else 0)
            case ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject, [])
                if not version.isdigit() or int(version) > len(versions):
                    return 404, json.dumps({"error_code": UNKNOWN_VERSION, "message": "Version not found"})
                return 200, json.dumps({**self._content(versions[int(version) - 1]), "subject": subject})
        return 404, json.dumps({"error_code": UNKNOWN_PATH, "message": "HTTP 404 Not Found"})

    def _schema(self, number: int) -> tuple[int, str]:
        if not 0 < number <= len(self.schemas):
            return 404, json.dumps({"error_code": UNKNOWN_SCHEMA, "message": "Schema not found"})
        return 200, json.dumps(self._content(number))

    def _content(self, number: int) -> dict[str, Any]:
        entry = self.schemas[number - 1]
        return {**entry["content"], "id": entry["id"], "guid": entry["guid"]}


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve a registry on a free port; `url` is its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET", b"")

        def do_POST(self) -> None:
            self._answer("POST", self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, method: str, body: bytes) -> None:
            path = unquote(urlsplit(self.path).path)
            status, text = registry.answer(method, path, body, self.headers.get("Authorization"))
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
