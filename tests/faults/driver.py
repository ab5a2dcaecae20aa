"""A pipeline's driver with all its processes: Python, its JVM, Spark's Python workers."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from glassflow_dagster.control.pool_endpoint import read_endpoint
from glassflow_dagster.runtime.process import start_of
from tests.support.processes import children, descendants
from tests.support.waiting import wait_until

_DEATH_SECONDS = 60


class Driver:
    """`glassflow-dagster run` as a background process in a session of its own; its output goes to `log`.

    pool: the folder of the pool whose JVM it shares, if any; the pool's processes count as the driver's.
    """

    def __init__(
        self, definition: Path, state: Path, log: Path, variables: Mapping[str, str], options: Sequence[str] = (),
        pool: Path | None = None,
    ) -> None:  # fmt: skip
        command = [sys.executable, "-m", "glassflow_dagster", "run", str(definition), "--state", str(state), *options]
        self.log = log
        self._pool = pool
        self._process = self._start(command, variables)

    def _start(self, command: Sequence[str], variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """Start the process on this host."""
        with self.log.open("ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, **variables},
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Return the exit code, None while the driver runs."""
        return self._process.poll()

    @property
    def jvm(self) -> int | None:
        """Return the pid of the JVM, None when there is none."""
        return next((pid for pid in children(self._owner) if _command(pid).startswith("java")), None)

    @property
    def workers(self) -> list[int]:
        """Return the pids of Spark's Python workers and of the daemon that forks them."""
        return [] if self.jvm is None else descendants(self.jvm)

    @property
    def all(self) -> list[int]:
        """Return the pids of all processes of the driver."""
        return [*dict.fromkeys((self.pid, *descendants(self.pid), self._owner, *descendants(self._owner)))]

    @property
    def _owner(self) -> int:
        """Return the pid of the process whose child the JVM is."""
        endpoint = read_endpoint(self._pool) if self._pool else None
        return endpoint.pid if endpoint else self.pid

    def kill(self, pids: list[int]) -> None:
        """Kill processes (SIGKILL), all at once."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def signal(self, number: signal.Signals, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> int:
        """Stop the driver like Ctrl-C, which lets it finish its batch; return the exit code."""
        if self.code is None:
            os.kill(self.pid, signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait until the driver has ended; return the exit code."""
        return self._process.wait(_DEATH_SECONDS)

    def end(self) -> None:
        """Kill all processes that are left of the driver."""
        left = {pid: start_of(pid) for pid in self.all}
        self.kill(list(left))
        self.wait()
        wait_until(
            lambda: not any(started and start_of(pid) == started for pid, started in left.items()),
            f"{list(left)} end", _DEATH_SECONDS,
        )  # fmt: skip


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _command(pid: int) -> str:
    try:
        return Path(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()).name
    except OSError:
        return ""
