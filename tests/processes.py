"""What a process has started, as the system tells it."""

from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Give the living processes that a process has started, the youngest last."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] not in {"Z", "X"}:
                found.append(int(stat.parent.name))
    return sorted(found)


def descendants(pid: int) -> list[int]:
    """Give the living processes below one."""
    return [below for child in children(pid) for below in (child, *descendants(child))]
