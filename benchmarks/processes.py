"""Memory and CPU time of processes, the size of their files, and programs that are called for what they do."""

import os
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

_SAMPLE_SECONDS = 1.0
LOG_TAIL = 2000  # characters, which hold a traceback's end


class Memory(threading.Thread):
    """Samples the memory of process trees until stopped: MiB by name, pages that processes share counted once."""

    def __init__(self, roots: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._roots = roots
        self._over = threading.Event()
        self._samples: list[tuple[float, dict[str, float]]] = []

    def run(self) -> None:
        """Sample until stopped."""
        while not self._over.wait(_SAMPLE_SECONDS):
            found = {name: sum(_proportional_set_size(pid) for pid in tree(root)) for name, root in self._roots.items()}
            self._samples.append((time.monotonic(), found))

    def stop(self) -> dict[str, float]:
        """Stop sampling; return the sample with the largest sum."""
        self._over.set()
        self.join()
        return self.peak(0, time.monotonic())

    def peak(self, begin: float, end: float) -> dict[str, float]:
        """Return the sample with the largest sum between two moments of `time.monotonic`; empty without a sample."""
        found = (sizes for at, sizes in self._samples if begin <= at <= end)
        return {
            name: round(size) for name, size in max(found, key=lambda sizes: sum(sizes.values()), default={}).items()
        }


def call(*command: str, folder: Path | None = None, **variables: str) -> None:
    """Run a command to its end, in a folder and with more environment variables; raise SystemExit where it fails."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    if done.returncode:
        raise SystemExit((done.stderr or done.stdout)[-LOG_TAIL:])


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def tree(root: int) -> list[int]:
    """Return a process and its descendants."""
    return _below(root, _children())


def cpu_seconds(*roots: int) -> float:
    """Return the CPU time of process trees, including descendants that have ended and were waited for."""
    return sum(cpu_seconds_by_name({str(root): root for root in roots}).values())


def cpu_seconds_by_name(roots: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU time of each process tree, read at one moment."""
    children = _children()
    # utime, stime, cutime and cstime.
    ticks = {
        name: sum(int(field) for pid in _below(root, children) for field in _stat(pid)[11:15])
        for name, root in roots.items()
    }
    return {name: used / os.sysconf("SC_CLK_TCK") for name, used in ticks.items()}


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    return children


def _below(root: int, children: Mapping[int, list[int]]) -> list[int]:
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def birth(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, which identifies it when its pid is reused."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the process state on; none when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _proportional_set_size(pid: int) -> float:
    """Return the proportional set size of a process in MiB; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
