"""Checks of TCP ports on loopback: whether a port is free, and which process holds it."""

import re
import socket
from pathlib import Path

from glassflow_dagster.errors import GlassflowError

_LISTEN = "0A"  # the state in /proc/net/tcp


def free_port() -> int:
    """Return a port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_free(port: int, service: str, option: str) -> None:
    """Raise GlassflowError when 127.0.0.1:`port` cannot be bound; the message names the process that holds it.

    service: whose port it is; option: of the command line, with which another port is chosen.
    """
    with socket.socket() as probe:
        # As servers do: connections in TIME_WAIT do not prevent binding.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (PermissionError, OverflowError) as error:
            raise GlassflowError(
                f"{service}: port {port} cannot be used ({error}); choose one from 1024 to 65535 with {option} N"
            ) from error
        except OSError as error:
            holder = holder_of(port)
            by = f" by {holder}" if holder else ""
            raise GlassflowError(
                f"{service}: port {port} is in use{by}; stop that process, or choose another port with {option} N"
            ) from error


def holder_of(port: int) -> str | None:
    """Return `command (process id)` of the process that listens on the port; None when it is not visible in /proc."""
    sockets = _listening(port)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(file.readlink()) in sockets for file in (folder / "fd").iterdir()):
                arguments = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                return f"{Path(arguments[0].decode(errors='replace')).name} (process {folder.name})"
        except OSError:
            continue  # the process has ended, or belongs to another user
    return None


def _listening(port: int) -> set[str]:
    """Return the sockets that listen on the port, as /proc/PID/fd links name them: "socket:[inode]"."""
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue
        for row in table.read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == _LISTEN and re.search(r":([0-9A-F]{4})$", fields[1]) and int(fields[1][-4:], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    return sockets
