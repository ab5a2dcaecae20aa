"""An OpenID provider that gives tokens to clients with a secret (RFC 6749, client credentials), over TLS."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.security.certificates import Authority
from tests.security.terminator import tls_before

CLIENT, SECRET, SCOPE = "etl-client", "Issuer-s3cret;=\"'", "kafka"
ISSUER, AUDIENCE = "https://issuer.test", "kafka-brokers"
_UNAUTHORIZED, _UNAVAILABLE = 401, 503


class TokenIssuer:
    """Answers on `url`. `lifetime`: of a token, in seconds. `audience`: whom it is for. `given`: how many.

    `away`: answer 503 instead.
    """

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.lifetime, self.given, self.away, self.audience = 3600, 0, False, AUDIENCE
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/token"

    @property
    def public_keys(self) -> str:
        """The key set with which brokers verify tokens."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": _number(numbers.n), "e": _number(numbers.e)}
        return json.dumps({"keys": [key]})

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        if self.away:
            return _UNAVAILABLE, {"error": "temporarily_unavailable"}
        expected = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != expected:
            return _UNAUTHORIZED, {"error": "invalid_client", "error_description": "unknown client or secret"}
        assert form == {"grant_type": ["client_credentials"], "scope": [SCOPE]}
        now = int(time.time())
        claims = {
            "sub": CLIENT, "iss": ISSUER, "aud": self.audience, "iat": now, "exp": now + self.lifetime, "scope": SCOPE,
        }  # fmt: skip
        self.given += 1
        return 200, {"access_token": self._sign(claims), "token_type": "Bearer", "expires_in": self.lifetime}

    def _sign(self, claims: dict[str, Any]) -> str:
        """Return a JSON Web Token (RFC 7519) with an RS256 signature."""
        parts = ({"alg": "RS256", "kid": "1"}, claims)
        text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_base64(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@contextmanager
def token_issuer(authority: Authority, folder: Path) -> Iterator[TokenIssuer]:
    """Run an issuer, with a certificate of the authority, for the block."""
    issuer = TokenIssuer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"issuer": issuer}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        with tls_before(server.server_port, authority, folder, ask_client=False) as issuer.port:
            yield issuer
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    issuer: TokenIssuer

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        status, content = self.issuer.answer(self.headers.get("Authorization", ""), form)
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log no requests."""
