"""Who may send, and how much: the limits that both servers apply before they decode a request."""

import hmac
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.runtime.token_file import read_token
from glassflow_dagster.server.otlp.budget import Budget
from glassflow_dagster.server.otlp.refusals import Reason, Refusal


class Token:
    """A token, or none: then every client is accepted."""

    def __init__(self, token: str = "") -> None:
        self._expected = f"Bearer {token}".encode() if token else b""

    @classmethod
    def read(cls, file: Path | None) -> "Token":
        """Return the token that a file holds; raises `GlassflowError` for a file that cannot be read or is empty."""
        return cls() if file is None else cls(read_token(file))

    def require(self, authorization: str | None) -> None:
        """Raise `Refusal` where the header or metadata `authorization` has another token."""
        given = (authorization or "").encode()
        if self._expected and not hmac.compare_digest(given, self._expected):
            raise Refusal(Reason.UNAUTHENTICATED, "send the header 'Authorization: Bearer TOKEN' with the valid token")


@dataclass(frozen=True)
class Admission:
    """The limits.

    token: what clients must send.
    bodies: those of requests in progress.
    largest: bytes of one, decompressed.
    """

    token: Token
    bodies: Budget
    largest: int
