"""Where a proxy listens: on loopback, or on a host of its own."""

import socket
from typing import Protocol


class Door(Protocol):
    """An address on which a proxy can listen."""

    @property
    def address(self) -> str: ...

    def listen(self, port: int) -> socket.socket:
        """Return a socket that listens on this port of the address."""


class Loopback:
    """The address of this machine that no other one reaches."""

    address = "127.0.0.1"

    def listen(self, port: int) -> socket.socket:
        return socket.create_server((self.address, port))
