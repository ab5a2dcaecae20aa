"""Background processes that outlive the command that started them, and are found again by it.

A record beside the data names the process by its id and the moment it started: ids are used again, the pair is not.
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
    """A process that was started here. `started` is its start as the system tells it, `port` where it listens.

    native_port: where it speaks a second protocol, None where it does not.
    """

    pid: int
    started: str
    port: int
    native_port: int | None = None

    def alive(self) -> bool:
        """Whether this very process still runs."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # a dead child of ours stays visible until it is asked for
        return start_of(self.pid) == self.started

    def end(self, seconds: float) -> None:
        """SIGTERM, and SIGKILL after so many seconds; returns when the process is gone."""
        for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, seconds)):
            deadline = time.monotonic() + patience
            if self.alive():
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            while self.alive() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)


def start(command: Sequence[str], port: int, log: Path, variables: Mapping[str, str]) -> Background:
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
    return Background(process.pid, start_of(process.pid) or "", port)


def recorded(file: Path) -> Background | None:
    """The process that `file` names, None when there is no readable record."""
    try:
        return Background(**json.loads(file.read_text()))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


def record(process: Background, file: Path) -> None:
    """Write the record in one step, so that it is whole or absent."""
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(process)))
    temporary.replace(file)


def start_of(pid: int) -> str | None:
    """When the process started, in the system's own words; None when there is none, or only its remains."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The name in brackets may hold anything; state is the first field after it, start time the twentieth.
            fields = stat.read_text().rpartition(")")[2].split()
            # A killed process is a zombie from the death of its first thread; its ports are free after the last one's.
            threads = len(list((stat.parent / "task").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in {"Z", "X"} and threads <= 1 else fields[19]
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def started_with(variable: str, value: str) -> dict[int, str]:
    """Find the processes that were given an environment variable, also by a parent that is gone: pid -> start.

    Empty where the system does not show environments, which is where it has no /proc.
    """
    wanted = f"{variable}={value}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                pid = int(folder.name)
                if started := start_of(pid):
                    found[pid] = started
    return found
