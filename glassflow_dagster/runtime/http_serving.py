"""What the commands that serve HTTP have in common: uvicorn on a socket of theirs, until a signal."""

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from glassflow_dagster.errors import GlassflowError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_UVICORNS_BACKLOG = 2048


class HttpServer(uvicorn.Server):
    """Uvicorn without its handlers of signals, which would raise the signal again at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `on_signal`."""
        yield


def http_server(
    application: Any, tls: tuple[Path, Path] | None, grace_seconds: int, backlog: int = _UVICORNS_BACKLOG
) -> HttpServer:
    """Return a server, which does not serve yet; raises `GlassflowError` for an invalid certificate.

    application: of ASGI.
    tls: files of certificate chain and private key in PEM format.
    grace_seconds: for requests in progress at the end.
    backlog: connections that wait to be accepted.
    """
    certificate, key = tls or (None, None)
    config = uvicorn.Config(
        application, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False, backlog=backlog,
        timeout_graceful_shutdown=grace_seconds, ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise GlassflowError(
            f"--tls-cert {certificate}, --tls-key {key}: cannot be used ({error}); write a certificate chain and "
            "its unencrypted private key in PEM format"
        ) from None
    return HttpServer(config)


def listen(host: str, port: int, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens on the first address of a host; raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=backlog)


def on_signal(end: Callable[[], None]) -> None:
    """Call `end` in the running event loop at SIGINT or SIGTERM; a second signal has its default effect."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        end()

    for number in _SIGNALS:
        loop.add_signal_handler(number, first)
