"""Terminates TLS in front of a server without TLS, as a load balancer does."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.security.certificates import Authority


@contextmanager
def tls_before(port: int, authority: Authority, folder: Path, *, ask_client: bool) -> Iterator[int]:
    """Listen with a certificate for localhost and forward to 127.0.0.1:`port`; return the TLS port.

    ask_client: whether a client must have a certificate of the authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem = folder / "server.pem"
    pem.write_text(authority.sign("server", "localhost").both)
    context.load_cert_chain(pem)
    if ask_client:
        context.load_verify_locations(cadata=authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=_serve, args=(listener, context, port), daemon=True)
        serving.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            # close() alone does not wake the thread in accept().
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def _serve(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    while True:
        try:
            raw, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_pass_on, args=(raw, context, port), daemon=True).start()


def _pass_on(raw: socket.socket, context: ssl.SSLContext, port: int) -> None:
    outer = context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
    try:
        outer.do_handshake()
    except OSError:
        _leave(outer)
        return
    with suppress(OSError), outer, socket.create_connection(("127.0.0.1", port)) as inner:
        back = threading.Thread(target=_copy, args=(inner, outer), daemon=True)
        back.start()
        _copy(outer, inner)
        back.join()


def _leave(refused: ssl.SSLSocket) -> None:
    """Wait until the client hangs up: closing a socket with unread data would discard the TLS alert on its way."""
    with socket.socket(fileno=refused.detach()) as raw, suppress(OSError):
        raw.settimeout(10)
        while raw.recv(65536):
            pass


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
