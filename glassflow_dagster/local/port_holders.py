"""Who holds a TCP port of this host: the process, and the local stack that it belongs to."""

import re
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.runtime.process import read_process

_LISTEN = "0A"  # the state in /proc/net/tcp


@dataclass(frozen=True)
class Holder:
    """A process that listens on a port.

    command: its name.
    stack: the data folder of the stack that it belongs to.
    """

    command: str
    pid: int
    stack: Path | None

    def __str__(self) -> str:
        place = f" of the stack in {self.stack}" if self.stack else ""
        return f"{self.command} (process {self.pid}){place}"

    @property
    def remedy(self) -> str:
        """What frees the port, as the beginning of a sentence."""
        return f"stop it with `glassflow-dagster stack down --data {self.stack}`" if self.stack else "stop that process"


def holder_of(port: int) -> Holder | None:
    """Return the process that listens on the port; None when it is not visible in /proc."""
    sockets = _listening(port)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(file.readlink()) in sockets for file in (folder / "fd").iterdir()):
                arguments = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
                return Holder(Path(arguments[0]).name, int(folder.name), _stack_of(int(folder.name), arguments))
        except OSError:
            continue  # the process has ended, or belongs to another user
    return None


def _stack_of(pid: int, arguments: list[str]) -> Path | None:
    """Return the data folder of the stack whose record has this process; None if it is no server of a stack.

    A server's arguments have paths in that folder.
    """
    paths = [Path(argument) for argument in arguments if argument.startswith("/")]
    for folder in dict.fromkeys(parent for path in paths for parent in path.parents):
        # See stack.py for the names.
        records = (read_process(folder / f"{server}.json") for server in ("kafka", "clickhouse", "object-store"))
        if any(record and record.pid == pid for record in records):
            return folder
    return None


def _listening(port: int) -> set[str]:
    """Return the sockets that listen on the port, as /proc/PID/fd links name them: "socket:[inode]"."""
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue
        for row in table.read_text().splitlines()[1:]:  # without the headings
            fields = row.split()
            local_address, state = fields[1], fields[3]  # the address ends with the port: four hexadecimal digits
            has_port = re.search(r":([0-9A-F]{4})$", local_address) and int(local_address[-4:], 16) == port
            if state == _LISTEN and has_port:
                inode = fields[9]
                sockets.add(f"socket:[{inode}]")
    return sockets
