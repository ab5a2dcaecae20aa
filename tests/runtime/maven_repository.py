"""A Maven repository on loopback, whose answers a test spoils."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from glassflow_dagster.runtime.jar_lock import Jar


@dataclass
class MavenRepository:
    """What is served, by path, and what was asked.

    faults: by path, what the next answers are in place of the content: a status, or "cut" for an answer that ends
    half way. asked: paths and headers of all requests.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[int | str]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    address: str = ""

    def publish(self, jar: Jar, content: bytes) -> None:
        self.contents[f"/maven/{jar.path}"] = content

    def fail(self, jar: Jar, *faults: int | str) -> None:
        self.faults[f"/maven/{jar.path}"] = list(faults)

    def asked_for(self, jar: Jar) -> int:
        return sum(path == f"/maven/{jar.path}" for path, _ in self.asked)


@contextmanager
def serving() -> Iterator[MavenRepository]:
    """Serve an empty repository."""
    repository = MavenRepository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.asked.append((self.path, dict(self.headers)))
            content, faults = repository.contents.get(self.path), repository.faults.get(self.path)
            fault = faults.pop(0) if faults else None
            status = fault if isinstance(fault, int) else 404 if content is None else 200
            body = content if status == 200 and content is not None else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        repository.address = f"http://127.0.0.1:{server.server_port}/maven"
        try:
            yield repository
        finally:
            server.shutdown()
            thread.join()
