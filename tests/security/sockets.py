"""Listening sockets, as listed in /proc."""

from contextlib import suppress
from pathlib import Path

LISTENING = "0A"  # the state LISTEN in /proc/net/tcp
# 127.0.0.1 as IPv4 and IPv4-mapped, and ::1; each word of four bytes is in this machine's byte order.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def listening(pids: list[int]) -> dict[str, str]:
    """Return each address that the processes listen on, with its process's command line."""
    owners: dict[str, str] = {}
    for pid in pids:
        # A process may end, and a file be closed, in the meantime.
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    owners[str(file.readlink())] = command
    found = {}
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == LISTENING and (owner := owners.get(f"socket:[{fields[9]}]")):
                found[fields[1]] = owner
    return found


def elsewhere(found: dict[str, str]) -> dict[str, str]:
    """Return the addresses that are not loopback."""
    return {address: owner for address, owner in found.items() if address.partition(":")[0] not in LOOPBACK}
