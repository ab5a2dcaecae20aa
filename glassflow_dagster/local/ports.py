"""TCP ports on loopback: free ones, and whether a port is free."""

import errno
import random
import socket
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.port_holders import holder_of

# Linux's own default where the kernel does not say: the ports from which it serves outgoing connections begin here.
_DEFAULT_LOWEST_OUTGOING = 32_768
_OUTGOING_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

# Above the ports of well-known servers (8123, 9000, 9092).
_LOWEST = 10_000

# With thousands of ports to choose from, so many that cannot be bound mean that binding itself fails.
_DRAWS = 1_000

# One that was returned may not be bound yet: its server still starts.
_returned: set[int] = set()


def free_port() -> int:
    """Return a port on which no process listens now, another one at each call in this process.

    The port is below those from which the system serves outgoing connections. A port of that range can be taken by any
    connection between the choice and the start of the server for which it was chosen, which may be seconds later.
    """
    draw = random.SystemRandom()  # not the seeded one: two processes with one seed must not draw the same ports
    for _ in range(_DRAWS):
        port = draw.randrange(_LOWEST, _lowest_outgoing())
        if port not in _returned and is_free(port):
            _returned.add(port)
            return port
    raise GlassflowError(f"no free port among {_DRAWS} drawn from {_LOWEST} to {_lowest_outgoing() - 1} of 127.0.0.1")


def _lowest_outgoing() -> int:
    """Return the lowest port of outgoing connections, or of those above `_LOWEST` where the system starts lower."""
    try:
        lowest = int(_OUTGOING_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_LOWEST_OUTGOING
    return lowest if lowest > _LOWEST + _DRAWS else _DEFAULT_LOWEST_OUTGOING


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port."""
    try:
        _bind(port)
    except OSError as error:
        if error.errno in {errno.EADDRINUSE, errno.EACCES}:
            return False
        raise
    return True


def require_free(port: int, service: str, option: str) -> None:
    """Raise GlassflowError when 127.0.0.1:`port` cannot be bound; the message names the process that holds it.

    service: whose port it is.
    option: of the command line, with which another port is chosen.
    """
    try:
        _bind(port)
    except (PermissionError, OverflowError) as error:
        raise GlassflowError(
            f"{service}: port {port} cannot be used ({error}); choose one from 1024 to 65535 with {option} N"
        ) from error
    except OSError as error:
        holder = holder_of(port)
        by = f" by {holder}" if holder else ""
        remedy = holder.remedy if holder else "stop the process that has it"
        raise GlassflowError(
            f"{service}: port {port} is in use{by}; {remedy}, or choose another port with {option} N"
        ) from error


def _bind(port: int) -> None:
    """Listen on a port as a server could, for a moment; raises `OSError`, and `OverflowError` for no port."""
    with socket.socket() as probe:
        # As servers do: connections in TIME_WAIT do not prevent binding.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
