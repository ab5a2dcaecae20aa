"""Decides before a request is handled whether it may be: who sends it, from which page, to which name, how large it is.

Without a token everyone on this host may send, and so may each web page in a browser there. So a request must name this
host (a name that an attacker lets point here is refused), and must not come from a page of another origin.
"""

import asyncio
import base64
import binascii
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from glassflow_dagster.server.api.api_error import ApiError

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Probes have no token, and learn nothing.
HEALTH = ("/api/v1/healthz", "/api/v2/healthz")
PAGE = "/api/v1/docs"
# The pages for people, which other pages may link to, and whose forms a browser sends.
PAGES = "/ui/"
BODY_SECONDS = 30.0
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")
_MEDIA_TYPES = ("application/json", "application/yaml", "application/x-yaml", "text/yaml")
_FORM = "application/x-www-form-urlencoded"
_HEADERS = (
    (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"),
)  # fmt: skip
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rules:
    """Who may send what.

    token: empty for none.
    host: that the server listens on.
    largest: bytes of a body.
    """

    token: str
    host: str
    largest: int


class Guard:
    """An ASGI application around the API's own; it also turns whatever fails inside into an answer."""

    def __init__(self, app: _App, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            self._require_allowed(scope)
            body = await read_body(receive, self._rules.largest)
            await self._app(scope, _Replayed(body, receive), answer)
        except ApiError as error:
            await answer.error(error)
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer
            # What the log has is not for clients.
            _log.exception("%s %s", scope["method"], scope["path"])
            await answer.error(ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", "Internal server error"))

    def _require_allowed(self, scope: MutableMapping[str, Any]) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not self._rules.token and _name(host) not in {*_LOOPBACK, self._rules.host}:
            raise ApiError(
                HTTPStatus.MISDIRECTED_REQUEST, "misdirected_request",
                f"the host {host!r} is not this one; use 127.0.0.1, or start the API with --token-file",
            )  # fmt: skip
        self._require_own_origin(scope, headers, host)
        if self._rules.token and scope["path"] not in HEALTH and not self._is_known(headers.get("authorization", "")):
            raise ApiError(
                HTTPStatus.UNAUTHORIZED, "unauthorized",
                "send the header 'Authorization: Bearer TOKEN', or the token as the password of http://api:TOKEN@HOST",
            )  # fmt: skip
        self._require_readable(scope, headers)

    @staticmethod
    def _require_own_origin(scope: MutableMapping[str, Any], headers: dict[str, str], host: str) -> None:
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        # Somebody has followed a link, for example Dagster's.
        is_page = scope["path"] == PAGE or scope["path"].startswith(PAGES)
        is_link = is_page and scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        is_own = origin is None or origin.partition("://")[2] == host
        if not is_own or (site not in {"none", "same-origin"} and not is_link):
            raise ApiError(HTTPStatus.FORBIDDEN, "forbidden", "requests from pages of another origin are refused")

    def _is_known(self, authorization: str) -> bool:
        """Return whether a header has the token: as a bearer, or as the password of an address."""
        scheme, _, credentials = authorization.partition(" ")
        given = credentials.strip()
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.encode(), self._rules.token.encode())

    def _require_readable(self, scope: MutableMapping[str, Any], headers: dict[str, str]) -> None:
        """Raise `ApiError` for a body that is too large, or that a form of any page could send.

        A form of the pages is told apart by the header Origin, which browsers send with it, and which is compared
        before.
        """
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._rules.largest:
            raise _too_large(self._rules.largest)
        has_body = length != "0" or "transfer-encoding" in headers
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["path"].startswith(PAGES) and media_type == _FORM and "origin" in headers:
            return
        if scope["method"] in _WITH_BODY and has_body and media_type not in _MEDIA_TYPES:
            text = f"Content-Type {media_type!r} is not read; send application/json or application/yaml"
            raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", text)


async def read_body(receive: _Receive, largest: int) -> bytes:
    """Return a request's body; raises `ApiError` as soon as it is too large, or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    # The first half of a definition in YAML may be one, too.
                    raise ApiError(HTTPStatus.BAD_REQUEST, "bad_request", "the client has gone before the body's end")
                body += message.get("body", b"")
                if len(body) > largest:
                    raise _too_large(largest)
                more = message.get("more_body", False)
    except TimeoutError:
        text = f"the body has not arrived within {BODY_SECONDS:g} s"
        raise ApiError(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", text) from None
    return bytes(body)


class _Replayed:
    """Receives a body that has been read, then what the client does next."""

    def __init__(self, body: bytes, receive: _Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> _Message:
        if self._body is None:
            return await self._receive()
        message = {"type": "http.request", "body": self._body, "more_body": False}
        self._body = None
        return message


class _Answer:
    """Sends an answer with the headers that each one has."""

    def __init__(self, send: _Send) -> None:
        self._send = send
        self._begun = False

    async def __call__(self, message: _Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            own = list(message.get("headers", ()))
            names = {name for name, _ in own}
            message["headers"] = [*own, *(header for header in _HEADERS if header[0] not in names)]
        await self._send(message)

    async def error(self, error: ApiError) -> None:
        """Send an error, unless an answer has begun."""
        if self._begun:
            return
        body = json.dumps(error.body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if error.status == HTTPStatus.UNAUTHORIZED:
            headers.append((b"www-authenticate", b'Basic realm="glassflow-dagster"'))
        await self({"type": "http.response.start", "status": int(error.status), "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _name(host: str) -> str:
    """Return the name in a Host header, without the port; empty for none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _too_large(largest: int) -> ApiError:
    text = f"the body has more than {largest:,} bytes; send less, or raise --max-request-bytes"
    return ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request_entity_too_large", text)
