"""Runs the API until a signal."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI

from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.http_serving import HttpServer, http_server, listen, on_signal
from glassflow_dagster.runtime.token_file import read_token
from glassflow_dagster.server.api.application import make_application
from glassflow_dagster.server.api.guard import Rules
from glassflow_dagster.server.api.services import Services

Report = Callable[[str], None]

_GRACE_SECONDS = 5  # for requests in progress at the end


@dataclass(frozen=True)
class Options:
    """What is served, and where.

    runner: starts the drivers, with the same folder of state.
    port: 0 for a free one.
    tls: files of certificate chain and private key in PEM format.
    largest_request: bytes.
    """

    pipelines: Path
    state: Path
    runner: StreamRunner
    host: str
    port: int
    token_file: Path | None
    tls: tuple[Path, Path] | None
    largest_request: int


@dataclass(frozen=True)
class Pages:
    """The pages for people, where the process serves these, too.

    name: of the command.
    path: of the first page.
    """

    name: str
    path: str
    extend: Callable[[FastAPI], None]


def serve(options: Options, report: Report, pages: Pages | None = None) -> None:
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
    services = Services.of(options.pipelines, options.state, options.runner, report)
    rules = Rules(token, options.host.lower(), options.largest_request)
    services.replays.go_on()
    application = make_application(services, rules, pages.extend if pages else None)
    server = http_server(application, options.tls, _GRACE_SECONDS)
    with _listen(options.host, options.port) as listener:
        try:
            asyncio.run(_run(server, listener, options, report, pages))
        finally:
            services.session.close()


def is_loopback(host: str) -> bool:
    """Return whether only this host can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


async def _run(
    server: HttpServer, listener: socket.socket, options: Options, report: Report, pages: Pages | None
) -> None:
    def end() -> None:
        server.should_exit = True

    on_signal(end)
    scheme = "https" if options.tls else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{scheme}://{host}:{listener.getsockname()[1]}"
    if pages:
        report(f"{pages.name}: {address}{pages.path} for {options.pipelines}")
    report(f"api: {address}/api/v1/docs for {options.pipelines}")
    await server.serve([listener])
    report(f"{pages.name if pages else 'api'}: ended; the pipelines go on")


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises `GlassflowError`."""
    try:
        return listen(host, port)
    except OSError as error:
        raise GlassflowError(
            f"api: cannot listen on {host}:{port}: {error.strerror}; choose another --port or --host"
        ) from None
