"""A load balancer: one address that connects clients to several servers in turn."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

from glassflow_dagster.local.ports import free_port


@contextmanager
def balance(upstreams: Sequence[int]) -> Iterator[int]:
    """Start the load balancer and yield its port; connections go to the upstream ports in turn."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listener:
        threading.Thread(target=_accept, args=(listener, upstreams), daemon=True).start()
        yield port
        listener.shutdown(socket.SHUT_RDWR)  # close() alone leaves the thread in its accept()


def _accept(listener: socket.socket, upstreams: Sequence[int]) -> None:
    for upstream in cycle(upstreams):
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection(("127.0.0.1", upstream))
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes from one socket to the other until either closes."""
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()
