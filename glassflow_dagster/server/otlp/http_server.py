"""OTLP over HTTP, with the receiver's health and metrics."""

import asyncio
import zlib
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from glassflow_dagster.server.otlp.admission import Admission
from glassflow_dagster.server.otlp.budget import OVERHEAD, Held
from glassflow_dagster.server.otlp.encoding import Encoding
from glassflow_dagster.server.otlp.receiver import Receiver
from glassflow_dagster.server.otlp.receiver_metrics import ReceiverMetrics
from glassflow_dagster.server.otlp.refusals import Reason, Refusal
from glassflow_dagster.server.otlp.signals import SIGNALS, Signal

# Seconds for the body of a request: a client that stops sending must not hold memory for ever.
BODY_SECONDS = 30.0
_ENCODINGS = {encoding.media_type: encoding for encoding in Encoding}
_REASONS = {reason.http: reason for reason in (Reason.NOT_RECEIVED, Reason.WRONG_METHOD)}


class HttpEndpoints:
    """The HTTP endpoints. health: returns what is wrong with Kafka; empty if nothing is."""

    def __init__(
        self, receiver: Receiver, admission: Admission, metrics: ReceiverMetrics, health: Callable[[], str]
    ) -> None:
        self._receiver = receiver
        self._admission = admission
        self._metrics = metrics
        self._health = health

    def application(self) -> Starlette:
        """Return the application: the signals' endpoints, /healthz and /metrics."""
        return Starlette(
            routes=[
                *(Route(signal.url_path, self._endpoint(signal), methods=["POST"]) for signal in SIGNALS),
                Route("/healthz", self._healthz),
                Route("/metrics", self._metrics_page),
            ],
            exception_handlers={HTTPException: _wrong_route},
        )

    def _endpoint(self, signal: Signal) -> Callable[..., object]:
        async def export(request: Request) -> Response:
            encoding = _ENCODINGS.get(_media_type(request))
            try:
                answer = await self._export(signal, encoding, request)
            except Refusal as refusal:
                answer = _refused(refusal, encoding)
            except ClientDisconnect:
                answer = Response(status_code=Reason.INVALID.http)  # which nobody receives
            self._metrics.answered(signal.name, "http", str(int(answer.status_code)))
            return answer

        return export

    async def _export(self, signal: Signal, encoding: Encoding | None, request: Request) -> Response:
        self._admission.token.require(request.headers.get("authorization"))
        self._receiver.topic(signal)
        if encoding is None:
            raise Refusal(
                Reason.WRONG_ENCODING,
                f"Content-Type {_media_type(request)!r} is not received; send {' or '.join(_ENCODINGS)}",
            )
        with self._admission.bodies.hold() as held:
            held.grow(OVERHEAD)
            body = await self.read_body(request, held)
            response = await self._receiver.export(signal, encoding, body)
        return Response(encoding.encode(response), media_type=encoding.media_type)

    async def read_body(self, request: Request, held: Held) -> bytes:
        """Return the decompressed body; raises `Refusal` as soon as it is larger than a body may be."""
        decompress = _decompressor(request.headers.get("content-encoding", "identity"))
        body, largest = bytearray(), self._admission.largest
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    # One byte more than allowed shows that it is too large.
                    part = decompress.feed(chunk, largest - len(body) + 1)
                    held.grow(len(part))
                    body += part
                    if len(body) > largest:
                        raise Refusal(
                            Reason.TOO_LARGE,
                            f"the request has more than {largest:,} bytes; reduce the exporter's batch size, or "
                            "raise --max-request-bytes",
                        )
        except TimeoutError:
            raise Refusal(Reason.TOO_SLOW, f"the body has not arrived within {BODY_SECONDS:g} s") from None
        decompress.finish()
        return bytes(body)

    async def _healthz(self, _request: Request) -> Response:
        problem = self._health()
        return PlainTextResponse(f"{problem or 'ok'}\n", status_code=503 if problem else 200)

    async def _metrics_page(self, _request: Request) -> Response:
        return Response(self._metrics.text(), media_type=self._metrics.content_type)


class _Identity:
    """A body that is not compressed."""

    def feed(self, chunk: bytes, most: int) -> bytes:
        """Return at most `most` bytes of a chunk."""
        return chunk[:most]

    def finish(self) -> None:
        """Accept the end of the body."""


class _Gzip:
    """Decompresses gzip, never to more bytes than asked for."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def feed(self, chunk: bytes, most: int) -> bytes:
        """Return at most `most` bytes of what a chunk of the body contains; raises `Refusal` for invalid data."""
        parts = bytearray()
        try:
            while chunk and len(parts) < most:
                if self._member.eof:  # a file may have several members
                    self._member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
                parts += self._member.decompress(chunk, most - len(parts))
                chunk = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        except zlib.error as error:
            raise Refusal(Reason.INVALID, f"the body is no gzip ({error}); correct Content-Encoding") from None
        return bytes(parts)

    def finish(self) -> None:
        """Raise `Refusal` where the body ends in the middle of the data."""
        if not self._member.eof:
            raise Refusal(Reason.INVALID, "the body ends in the middle of its gzip data; send all of it")


def _decompressor(content_encoding: str) -> _Identity | _Gzip:
    """Return what reads a Content-Encoding; raises `Refusal` for one that is not received."""
    name = content_encoding.strip().lower()
    if name in {"", "identity"}:
        return _Identity()
    if name == "gzip":
        return _Gzip()
    raise Refusal(Reason.WRONG_ENCODING, f"Content-Encoding {name!r} is not received; send gzip or identity")


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _refused(refusal: Refusal, encoding: Encoding | None) -> Response:
    """Return the answer for a refusal: a google.rpc.Status in the request's encoding, JSON if that is not known."""
    encoding = encoding or Encoding.JSON
    reason = refusal.reason
    headers = {"Retry-After": str(reason.retry_after)} if reason.retry_after is not None else {}
    if reason is Reason.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(encoding.encode(refusal.status()), reason.http, headers, encoding.media_type)


async def _wrong_route(request: Request, error: Exception) -> Response:
    """Return the answer for an unknown path, or another method than POST."""
    assert isinstance(error, HTTPException)
    reason = _REASONS[error.status_code]  # type: ignore[index]
    text = (
        f"{request.url.path} is not served; send to {', '.join(signal.url_path for signal in SIGNALS)}"
        if reason is Reason.NOT_RECEIVED
        else f"{request.method} {request.url.path} is not served; use {(error.headers or {}).get('Allow', 'POST')}"
    )
    answer = _refused(Refusal(reason, text), _ENCODINGS.get(_media_type(request)))
    answer.headers.update(error.headers or {})
    return answer
