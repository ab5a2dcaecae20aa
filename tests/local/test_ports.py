"""Free ports: outside the range of outgoing connections, none twice, each of them usable."""

import socket
from pathlib import Path

from glassflow_dagster.local.ports import free_port

_DRAWN = 200


def test_a_free_port_is_never_one_that_an_outgoing_connection_may_take_meanwhile() -> None:
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < lowest_outgoing for _ in range(_DRAWN))


def test_no_free_port_is_returned_twice() -> None:
    drawn = [free_port() for _ in range(_DRAWN)]
    assert len(set(drawn)) == _DRAWN


def test_a_server_can_listen_on_a_free_port() -> None:
    port = free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert client.getpeername() == ("127.0.0.1", port)
