"""Background processes that outlive the command that started them and are found again by later commands.

A record in a file identifies the process by its id and its start time: the system reuses ids, but not the pair.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Background:
    """A detached process: `started` is its start time as `start_of` returns it, `port` the port it listens on.

    native_port: the port of a second protocol; None without one.
    """

    pid: int
    started: str
    port: int
    native_port: int | None = None

    def alive(self) -> bool:
        """Return whether this process is running; False when its id now belongs to another process."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # a dead child process stays in the process table until it is waited for
        return start_of(self.pid) == self.started

    def end(self, seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after so many seconds; return when the process has ended."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + seconds
            if self.alive():
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal_number)
            while self.alive() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)


def start_process(command: Sequence[str], port: int, log: Path, variables: Mapping[str, str]) -> Background:
    """Start `command` detached from this terminal and session, its output appended to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
            start_new_session=True,
        )
    # "" when it has ended already: then `alive` is False.
    return Background(process.pid, start_of(process.pid) or "", port)


def read_process(file: Path) -> Background | None:
    """Read a process record; None when the file is missing or invalid."""
    try:
        return Background(**json.loads(file.read_text()))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


def write_process(process: Background, file: Path) -> None:
    """Write a process record atomically."""
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(process)))
    temporary.replace(file)


def start_of(pid: int) -> str | None:
    """Return the start time of a process as text, to compare only; None when it has ended or is a zombie.

    It is the start time in clock ticks from /proc, or the text of `ps` on systems without /proc.
    """
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The command name in brackets may contain spaces; behind it, field 0 is the state and 19 the start time.
            fields = stat.read_text().rpartition(")")[2].split()
            # A killed process is a zombie once its first thread has ended, but holds its ports until the last one has.
            threads = len(list((stat.parent / "task").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in {"Z", "X"} and threads <= 1 else fields[19]
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def started_with(variable: str, value: str) -> dict[int, str]:
    """Find the running processes that have an environment variable with this value: pid -> start time.

    This finds processes whose parent has ended, too. Empty on systems without /proc.
    """
    entry = f"{variable}={value}".encode()
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                pid = int(folder.name)
                if started := start_of(pid):
                    processes[pid] = started
    return processes
