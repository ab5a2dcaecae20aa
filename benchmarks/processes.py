"""What processes take of the machine: memory and CPU time."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

_SAMPLE_SECONDS = 1.0


class Memory(threading.Thread):
    """Samples the memory of process trees; `stop` gives the sample in which all of them together had most."""

    def __init__(self, roots: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._roots = roots
        self._over = threading.Event()
        self._peak: dict[str, float] = {}

    def run(self) -> None:
        """Sample until stopped; keep the sample with the greatest sum."""
        while not self._over.wait(_SAMPLE_SECONDS):
            sizes = {name: sum(_proportional_set_size(pid) for pid in tree(root)) for name, root in self._roots.items()}
            if sum(sizes.values()) > sum(self._peak.values()):
                self._peak = sizes

    def stop(self) -> dict[str, float]:
        """MiB by name, pages that processes share counted once."""
        self._over.set()
        self.join()
        return {name: round(size) for name, size in self._peak.items()}


def tree(root: int) -> list[int]:
    """A process and all below it."""
    return _below(root, _children())


def cpu_seconds(*roots: int) -> float:
    """CPU time of processes and all below them, those included that have ended and were waited for."""
    return sum(cpu_seconds_by_name({str(root): root for root in roots}).values())


def cpu_seconds_by_name(roots: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds of several process trees by name, from one look at all processes."""
    children = _children()
    # utime, stime, cutime and cstime.
    ticks = {
        name: sum(int(field) for pid in _below(root, children) for field in _stat(pid)[11:15])
        for name, root in roots.items()
    }
    return {name: used / os.sysconf("SC_CLK_TCK") for name, used in ticks.items()}


def _children() -> dict[int, list[int]]:
    """Return the children of each process: id -> ids."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                # Field 1 is the parent.
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    return children


def _below(root: int, children: Mapping[int, list[int]]) -> list[int]:
    """Return the ids of a process and all its descendants."""
    pids, queue = [], [root]
    while queue:
        pid = queue.pop()
        pids.append(pid)
        queue += children.get(pid, [])
    return pids


def birth(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine did; it tells a process from a later one with its id."""
    fields = _stat(pid)
    # Field 19, counted from the state, is the start time.
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, which follows the name; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _proportional_set_size(pid: int) -> float:
    """MiB of a process, shared pages divided among those that share them; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
