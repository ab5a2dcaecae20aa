"""TCP ports on loopback: whether one is free, and who holds one that is not."""

import re
import socket
from pathlib import Path

from glassflow_dagster.errors import GlassflowError

_LISTEN = "0A"  # the state in /proc/net/tcp


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_free(port: int, service: str, option: str) -> None:
    """Raise GlassflowError, naming the holder where it can be seen, when 127.0.0.1:`port` cannot be listened on."""
    with socket.socket() as probe:
        # As servers do: a connection that is still being closed does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (PermissionError, OverflowError) as error:
            raise GlassflowError(
                f"{service}: port {port} may not be used ({error}); choose one from 1024 to 65535 with {option} N"
            ) from error
        except OSError as error:
            holder = holder_of(port)
            by = f" by {holder}" if holder else ""
            raise GlassflowError(
                f"{service}: port {port} is in use{by}; stop that, or choose another port with {option} N"
            ) from error


def holder_of(port: int) -> str | None:
    """`command (process id)` of the listener on the port; None where the system does not let it be seen."""
    sockets = _listening(port)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(file.readlink()) in sockets for file in (folder / "fd").iterdir()):
                words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                return f"{Path(words[0].decode(errors='replace')).name} (process {folder.name})"
        except OSError:
            continue  # gone, or another user's
    return None


def _listening(port: int) -> set[str]:
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue
        for row in table.read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == _LISTEN and re.search(r":([0-9A-F]{4})$", fields[1]) and int(fields[1][-4:], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found
