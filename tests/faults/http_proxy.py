"""An HTTP proxy in front of ClickHouse or an object store that makes chosen requests fail in chosen ways."""

import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.faults.doors import Door, Loopback

_INSERT = re.compile(rb"INSERT INTO `[^`]+`\.`(?P<table>[^`]+)`")
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}
# HTTP status of an error that occurs before the response has begun.
_FAILED = 500
_ANSWER_SECONDS = 150  # seconds; longer than any client here waits


@dataclass(frozen=True)
class Answer:
    """The server's response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchange:
    """A request that a fault acts on. `table` is None when the request inserts nothing.

    `statement` is the SQL text; data may follow it. `client`: the address of the client. `upstream`: the port of the
    server that gets the request.
    """

    def __init__(self, handler: "_Handler", body: bytes) -> None:
        self._handler, self.body = handler, body
        self.upstream = handler.proxy.choose_upstream()
        self.method, self.path = handler.command, handler.path
        self.client: str = handler.client_address[0]
        query = parse_qs(urlsplit(handler.path).query).get("query", [""])[0].encode()
        self.statement = query or body
        found = _INSERT.match(query) or _INSERT.match(body)
        self.table = found["table"].decode() if found else None

    def forward(self) -> Answer:
        """Send the request to the server; return its response."""
        return self.forward_to(self.upstream)

    def forward_to(self, port: int) -> Answer:
        """Send the request to the server on a port; return its response."""
        upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
        try:
            upstream.request(self._handler.command, self.path, self.body, self._headers())
            answer = upstream.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            upstream.close()

    def forward_part(self, share: float) -> None:
        """Send the beginning of the request to the server, then close that connection."""
        until = int(len(self.body) * share)
        head = f"{self._handler.command} {self.path} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self._headers().items())
        head += f"Content-Length: {len(self.body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.upstream)) as upstream:
            upstream.sendall(head.encode("latin-1") + self.body[:until])

    def answer(self, answer: Answer) -> None:
        """Send a response to the client."""
        self._handler.send(answer)

    def answer_part(self, answer: Answer, share: float) -> None:
        """Send the beginning of a response to the client, and reset the connection."""
        whole = self._handler.render(answer)
        self._handler.connection.sendall(whole[: int(len(whole) * share)])
        self.hang_up()

    def hang_up(self) -> None:
        """Reset the client's connection."""
        self._handler.hang_up()

    def _headers(self) -> dict[str, str]:
        return {name: value for name, value in self._handler.headers.items() if name.lower() not in _HOP_BY_HOP}


Act = Callable[[Exchange], None]


@dataclass
class Rule:
    """Makes inserts fail: of those into one of `tables` (any table if empty), skip `skip`, then act on `times`."""

    act: Act
    tables: frozenset[str] = frozenset()
    skip: int = 0
    times: int = 1
    hits: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def takes(self, exchange: Exchange) -> bool:
        """Return whether the rule acts on this request, and count it."""
        if self.hits == self.times or not self.concerns(exchange):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.hits += 1
        return True

    def concerns(self, exchange: Exchange) -> bool:
        """Return whether a request is of the kind that the rule is about."""
        return exchange.table is not None and (not self.tables or exchange.table in self.tables)


class HttpProxy:
    """A proxy on `port` of a door for the server at 127.0.0.1:`upstream`.

    `refuse` and `accept` close and open its port.
    """

    def __init__(self, port: int, upstream: int, door: Door | None = None) -> None:
        self.port, self._upstream, self._door = port, upstream, door or Loopback()
        self._rule: Rule | None = None
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self.change: Callable[[Exchange], Answer | None] = lambda _: None
        self.accept()

    def accept(self) -> None:
        """Open the port."""
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(self._door.listen(self.port), handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def refuse(self) -> None:
        """Close the port, and reset all connections."""
        assert self._server
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            reset(connection)

    def close(self) -> None:
        self.refuse()

    def choose_upstream(self) -> int:
        """Return the port of the server for the next request."""
        return self._upstream

    def fail(self, rule: Rule) -> Rule:
        """Put a rule in force instead of the previous one."""
        self._rule = rule
        return rule

    def behave(self) -> None:
        """Remove the rule, so that all requests pass."""
        self._rule = None

    def handle(self, exchange: Exchange) -> None:
        """Apply the rule to a request, or pass it on."""
        changed = self.change(exchange)
        if changed is not None:
            exchange.answer(changed)
            return
        with self._lock:
            rule = self._rule
            taken = rule is not None and rule.takes(exchange)
        if not taken:
            exchange.answer(exchange.forward())
            return
        assert rule
        try:
            rule.act(exchange)
        finally:
            if rule.hits == rule.times:
                rule.done.set()

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)


def reset(connection: socket.socket) -> None:
    """Close a connection by a TCP reset, as after a crash of the host."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # already closed by the client


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(listening.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of connections that a fault has cut."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: HttpProxy

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.proxy.opened(self.connection)

    def finish(self) -> None:
        self.proxy.closed(self.connection)
        super().finish()

    def do_POST(self) -> None:
        exchange = Exchange(self, self._body())
        try:
            self.proxy.handle(exchange)
        except (OSError, http.client.HTTPException):
            self.hang_up()  # the server or the client is gone

    # The base class's names.
    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST  # noqa: N815

    def send(self, answer: Answer) -> None:
        self.wfile.write(self.render(answer))

    def render(self, answer: Answer) -> bytes:
        lines = [f"HTTP/1.1 {answer.status} {http.client.responses.get(answer.status, '-')}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP]
        # The answer to a HEAD has the length of a body that does not follow.
        named = {name.lower(): value for name, value in answer.headers.items()}
        is_head = self.command == "HEAD"
        length = named.get("content-length", "0") if is_head else len(answer.body)
        lines += [f"Content-Length: {length}", "", ""]
        return "\r\n".join(lines).encode("latin-1") + (b"" if is_head else answer.body)

    def hang_up(self) -> None:
        self.close_connection = True
        reset(self.connection)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log no requests."""


def exception(code: int, text: str, status: int = _FAILED) -> Answer:
    """Return an error response of ClickHouse."""
    body = f"Code: {code}. DB::Exception: {text} (version 26.9.2.1)\n".encode()
    return Answer(status, {"X-ClickHouse-Exception-Code": str(code), "Content-Type": "text/plain"}, body)


def late_exception(code: int, text: str) -> Answer:
    """Return an error that occurs after the status was sent: an exception in the body of a 200."""
    return Answer(200, {"Content-Type": "text/plain"}, exception(code, text).body)


def failure(status: int) -> Answer:
    """Return an error response of a middlebox between client and server, without a ClickHouse code."""
    return Answer(status, {"Content-Type": "text/html"}, f"<h1>{status}</h1>".encode())


def swallow(exchange: Exchange) -> None:
    """Execute the request, and reset the connection before the response."""
    exchange.forward()
    exchange.hang_up()


def slowly(seconds: float) -> Act:
    """Return an action that executes the request and delays the response."""

    def act(exchange: Exchange) -> None:
        found = exchange.forward()
        time.sleep(seconds)
        exchange.answer(found)

    return act
