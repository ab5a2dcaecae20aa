"""Runs the API until a signal."""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from glassflow_dagster.api.application import make_application
from glassflow_dagster.api.guard import Guard, Rules
from glassflow_dagster.api.pipelines import Launch
from glassflow_dagster.api.services import Services
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.token_file import read_token

Report = Callable[[str], None]

_GRACE_SECONDS = 5  # for requests in progress at the end
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Options:
    """What is served, and where. port: 0 for a free one. tls: files of certificate chain and private key in PEM format.

    largest_request: bytes.
    """

    pipelines: Path
    state: Path
    launch: Launch
    host: str
    port: int
    token_file: Path | None
    tls: tuple[Path, Path] | None
    largest_request: int


def serve(options: Options, report: Report) -> None:
    """Serve until SIGINT or SIGTERM; drivers go on. Raises `GlassflowError`."""
    token = read_token(options.token_file) if options.token_file else ""
    if not token and not is_loopback(options.host):
        raise GlassflowError(
            f"--host {options.host}: other hosts could send without a token; add --token-file FILE, or listen on "
            "127.0.0.1"
        )
    if not options.tls and not is_loopback(options.host):
        report("api: warning: token and secrets are sent without encryption; add --tls-cert and --tls-key")
    logging.basicConfig(format="%(name)s: %(message)s")
    services = Services.of(options.pipelines, options.state, options.launch, report)
    rules = Rules(token, options.host.lower(), options.largest_request)
    config = _config(make_application(services, rules), options)
    with _listening(options.host, options.port) as listener:
        try:
            asyncio.run(_run(_Server(config), listener, options, report))
        finally:
            services.session.close()


def is_loopback(host: str) -> bool:
    """Return whether only this host can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class _Server(uvicorn.Server):
    """Uvicorn without its handlers of signals, which would raise the signal again at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(application: Guard, options: Options) -> uvicorn.Config:
    """Return uvicorn's configuration; raises `GlassflowError` for an invalid certificate."""
    certificate, key = options.tls or (None, None)
    config = uvicorn.Config(
        application, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS, ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise GlassflowError(
            f"--tls-cert {certificate}, --tls-key {key}: cannot be used ({error}); write a certificate chain and "
            "its unencrypted private key in PEM format"
        ) from None
    return config


async def _run(server: _Server, listener: socket.socket, options: Options, report: Report) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        # From now on a signal has its default effect.
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        server.should_exit = True

    for number in _SIGNALS:
        loop.add_signal_handler(number, end)
    scheme = "https" if options.tls else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    report(f"api: {scheme}://{host}:{listener.getsockname()[1]}/api/v1/docs for {options.pipelines}")
    await server.serve([listener])
    report("api: ended; the pipelines go on")


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens; raises `GlassflowError`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family)
    except OSError as error:
        raise GlassflowError(
            f"api: cannot listen on {host}:{port}: {error.strerror}; choose another --port or --host"
        ) from None
    with listener:
        yield listener
