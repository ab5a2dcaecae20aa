"""The HTTP side: a request becomes a statement with its conversation, the result becomes an answer.

A body is taken in whole before the statement runs (in memory, beyond that in a file), so that a client that dies
while sending inserts nothing. Results are sent as they come where the format allows it and the client does not ask
to wait (`wait_end_of_query`); the status is decided with the first megabyte, and an error after
that is appended between the marks that clients look for.
"""

import email
import email.policy
import json
import secrets
import tempfile
import uuid
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from glassflow_dagster.local.clickhouse_front.coding import Encoder, accepted_coding, decoded, encoder
from glassflow_dagster.local.clickhouse_front.engine import (
    STREAMABLE_FORMATS,
    Conversation,
    Counts,
    Engine,
    Handle,
)
from glassflow_dagster.local.clickhouse_front.errors import (
    INVALID_SESSION_TIMEOUT,
    NOT_IMPLEMENTED,
    SYNTAX_ERROR,
    EngineError,
    engine_error,
)
from glassflow_dagster.local.clickhouse_front.statement import is_select, split_format, split_insert

# Parameters of the transport; every other one is a setting. Those of no meaning here are taken and left.
_TRANSPORT = frozenset(
    {
        *("query", "database", "default_format", "session_id", "session_timeout", "session_check", "query_id"),
        *("user", "password", "quota_key", "role", "client_protocol_version", "compress", "decompress"),
        *("wait_end_of_query", "buffer_size", "enable_http_compression", "close_session"),
        *("send_progress_in_http_headers", "http_headers_progress_interval_ms"),
        # About the connection of a reader that leaves; a stream is always ended with its connection.
        "cancel_http_readonly_queries_on_client_close",
    }
)

# An INSERT with a few thousand columns ends well before this; only so much of a body is searched for its data.
_LONGEST_INSERT_STATEMENT = 1 << 20

_IN_MEMORY = 32 << 20  # bytes of a request body; the rest goes to a file

# A result up to this size is complete before its status is sent, so that its errors have one. Bytes, as in ClickHouse.
_HELD_BACK = 1 << 20

_LONGEST_SESSION = 3600.0  # seconds, ClickHouse's own limit


@dataclass(frozen=True)
class _Asked:
    """A request, read."""

    parameters: Mapping[str, str]
    content: Iterator[bytes]
    conversation: Conversation
    default_format: str
    coding: str | None
    query_id: str

    @property
    def waits_for_the_end(self) -> bool:
        return self.parameters.get("wait_end_of_query") == "1"


@dataclass(frozen=True)
class _Result:
    """The pieces of an answer and what is known before the first one is sent."""

    pieces: Generator[bytes, None, None]
    output_format: str | None
    counts: Counts


def create_app(engine: Engine, spool: Path) -> Starlette:
    """The interface on an engine; bodies too large for memory lie in the folder `spool` while they are read."""

    async def statement(request: Request) -> Response:
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(spool)) as body:
            try:
                async for piece in request.stream():
                    body.write(piece)
            except ClientDisconnect:
                return Response(status_code=400)
            body.seek(0)
            if request.method in {"GET", "HEAD"} and not request.query_params:
                return PlainTextResponse("Ok.\n")
            return await run_in_threadpool(_answer, engine, request, body)

    async def ok(_: Request) -> Response:
        return PlainTextResponse("Ok.\n")

    routes = [
        Route("/ping", ok),
        Route("/replicas_status", ok),
        Route("/", statement, methods=["GET", "POST", "PUT"]),
    ]
    return Starlette(routes=routes)


def _answer(engine: Engine, request: Request, body: IO[bytes]) -> Response:
    """Run the request's statement; blocking, so to be called in a worker thread."""
    query_id = request.query_params.get("query_id") or str(uuid.uuid4())
    with ExitStack() as resources:
        try:
            asked = _read(request, body, query_id)
            handle = resources.enter_context(engine.handle(asked.conversation))
            result = _execute(handle, asked)
            resources.callback(result.pieces.close)  # before the handle
            start, complete = _start(result.pieces)
        except EngineError as error:
            headers = {"X-ClickHouse-Exception-Code": str(error.code), "X-ClickHouse-Query-Id": query_id}
            return PlainTextResponse(f"{error}\n", error.status, headers)
        packed = encoder(asked.coding) if asked.coding else None
        mark = secrets.token_hex(8)
        headers = _headers(engine, asked, result, mark)
        kind = "application/octet-stream" if result.output_format == "Native" else "text/plain; charset=UTF-8"
        if complete:
            content = packed.compress(start) + packed.flush() if packed else start
            return Response(content, media_type=kind, headers=headers)
        rest = chain([start], _marked(result.pieces, mark))
        return StreamingResponse(_sent(rest, packed, resources.pop_all()), media_type=kind, headers=headers)


def _start(pieces: Iterator[bytes]) -> tuple[bytes, bool]:
    """The first bytes of a result, and whether they are all of it."""
    start = bytearray()
    for piece in pieces:
        start += piece
        if len(start) >= _HELD_BACK:
            return bytes(start), False
    return bytes(start), True


def _headers(engine: Engine, asked: _Asked, result: _Result, mark: str) -> dict[str, str]:
    counts = {
        "read_rows": result.counts.rows_read,
        "read_bytes": result.counts.bytes_read,
        "written_rows": result.counts.rows_written,
        "written_bytes": result.counts.bytes_written,
    }
    return {
        "X-ClickHouse-Query-Id": asked.query_id,
        "X-ClickHouse-Server-Display-Name": "glassflow-dagster",
        "X-ClickHouse-Timezone": engine.time_zone,
        "X-ClickHouse-Summary": json.dumps({name: str(count) for name, count in counts.items()}),
        "X-ClickHouse-Exception-Tag": mark,
        **({"X-ClickHouse-Format": result.output_format} if result.output_format else {}),
        **({"Content-Encoding": asked.coding} if asked.coding else {}),
    }


async def _sent(pieces: Iterator[bytes], packed: Encoder | None, resources: ExitStack) -> AsyncIterator[bytes]:
    """The answer's bytes, coded; gives the handle back at the end, or when the client has gone."""

    def next_content() -> bytes | None:
        piece = next(pieces, None)
        return piece if piece is None or packed is None else packed.compress(piece)

    try:
        while (content := await run_in_threadpool(next_content)) is not None:
            if content:
                yield content
        if packed:
            yield packed.flush()
    finally:
        resources.close()


def _marked(pieces: Iterator[bytes], mark: str) -> Iterator[bytes]:
    """The pieces; an error between them becomes the text that ends the answer, between ClickHouse's marks."""
    try:
        yield from pieces
    except EngineError as error:
        text = f"{error}\n".encode()
        opening, closing = f"\r\n__exception__\r\n{mark}\r\n", f"{len(text)} {mark}\r\n__exception__\r\n"
        yield opening.encode() + text + closing.encode()


def _execute(handle: Handle, asked: _Asked) -> _Result:
    given = asked.parameters.get("query", "").encode()
    start = _joined(given, asked.content)
    if insert := split_insert(start):
        return _Result(_whole(b""), None, handle.insert(insert, asked.content))
    text = start + b"".join(asked.content)
    if not text.strip():
        raise engine_error(SYNTAX_ERROR, "Syntax error: Empty query. (SYNTAX_ERROR)")
    try:
        sql, output_format = split_format(text, asked.default_format)
    except UnicodeDecodeError as error:
        raise engine_error(SYNTAX_ERROR, f"Syntax error: the query is not UTF-8: {error}. (SYNTAX_ERROR)") from error
    rows = handle.returns_rows(sql)
    if rows and is_select(text) and output_format in STREAMABLE_FORMATS and not asked.waits_for_the_end:
        return _Result(handle.stream(sql, output_format), output_format, Counts())
    content, counts = handle.run(sql, output_format)
    return _Result(_whole(content), output_format if rows else None, counts)


def _whole(content: bytes) -> Generator[bytes, None, None]:
    yield content


def _joined(given: bytes, content: Iterator[bytes]) -> bytes:
    """The start of the statement: the `query` parameter, then the body as far as a statement may reach."""
    start = bytearray(given)
    for piece in content:
        # A statement from the parameter and data from the body meet at a line end.
        start += b"\n" * (len(start) == len(given) > 0) + piece
        if len(start) >= _LONGEST_INSERT_STATEMENT:
            break
    return bytes(start)


def _read(request: Request, body: IO[bytes], query_id: str) -> _Asked:
    parameters = {**_from_headers(request), **request.query_params}
    content = decoded(body, request.headers.get("content-encoding", "").lower())
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        parameters |= _form(request.headers["content-type"], b"".join(content))
        content = iter(())
    for framing in ("compress", "decompress"):
        if parameters.get(framing) == "1":
            raise engine_error(
                NOT_IMPLEMENTED, f"{framing}=1 is not supported here; use Content-Encoding and Accept-Encoding"
            )
    compressed = parameters.get("enable_http_compression") == "1"
    return _Asked(
        parameters=parameters,
        content=content,
        conversation=_conversation(parameters, read_only=request.method in {"GET", "HEAD"}),
        default_format=parameters.get("default_format") or "TabSeparated",
        coding=accepted_coding(request.headers.get("accept-encoding", "")) if compressed else None,
        query_id=query_id,
    )


def _from_headers(request: Request) -> dict[str, str]:
    named = {"database": "x-clickhouse-database", "default_format": "x-clickhouse-format"}
    return {name: request.headers[header] for name, header in named.items() if header in request.headers}


def _conversation(parameters: Mapping[str, str], *, read_only: bool) -> Conversation:
    try:
        seconds = min(float(parameters.get("session_timeout", "60")), _LONGEST_SESSION)
    except ValueError as error:
        raise engine_error(
            INVALID_SESSION_TIMEOUT, f"Invalid session timeout: {error}. (INVALID_SESSION_TIMEOUT)"
        ) from error
    return Conversation(
        database=parameters.get("database"),
        settings={
            name: value
            for name, value in parameters.items()
            if name not in _TRANSPORT and not name.startswith("param_")
        },
        parameters={
            name.removeprefix("param_"): value for name, value in parameters.items() if name.startswith("param_")
        },
        read_only=read_only,
        session=parameters.get("session_id"),
        session_seconds=seconds,
        session_must_exist=parameters.get("session_check") == "1",
    )


def _form(content_type: str, body: bytes) -> dict[str, str]:
    """The fields of a multipart form (`query`, `param_*`), which clients use for parameters too long for a URL."""
    message = email.message_from_bytes(
        f"Content-Type: {content_type}\r\n\r\n".encode() + body, policy=email.policy.HTTP
    )
    fields = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if part.get_filename() is not None:
            raise engine_error(
                NOT_IMPLEMENTED, f"tables sent with a query ({name}) are not supported here; insert them first"
            )
        content = part.get_payload(decode=True)
        fields[str(name)] = content.decode() if isinstance(content, bytes) else ""
    return fields
