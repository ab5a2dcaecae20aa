"""Child processes, as listed in /proc."""

from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the living children of a process, the youngest last."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] not in {"Z", "X"}:
                found.append(int(stat.parent.name))
    return sorted(found)


def descendants(pid: int) -> list[int]:
    """Return the living descendants of a process."""
    return [below for child in children(pid) for below in (child, *descendants(child))]
