"""The file of a detached driver's messages, `driver.log`, and its rotation: 10 MB, and three older ones.

Only the driver's Python process writes to the file: it reads from a pipe what its JVM and the Python workers print
(`output_pipe`). If they had inherited the file, they would go on writing to the renamed one, and what they print last,
such as the reason of a crash of the JVM, would be lost once that is removed by later rotations.
"""

import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path
from threading import RLock

# As Spark's own log (log4j2.properties).
LIMIT = 10 * 1024 * 1024  # bytes
OLDER_FILES = 3

# Enough for a Spark failure with its Java causes; the rest is in the log itself.
_TAIL_LINES = 40
_TAIL_BYTES = 64 * 1024

_STANDARD_STREAMS = (1, 2)  # file descriptors of stdout and stderr


class RotatingStderr:
    """Writes lines to stderr, which is a file, and rotates that file: `RotatingStderr(file).write_line(...)`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        # Reentrant: while a line is written, Python may collect garbage, and report an error of that as another line.
        self._lock = RLock()

    def write_line(self, line: str) -> None:
        """Write a line and its end, first rotate the file if it is full; may be called from several threads."""
        with self._lock:
            # Without space or permission the line still belongs in the full file, and a log must not end a driver.
            with suppress(OSError):
                self._rotate()
            write_to_stderr(line)

    def _rotate(self) -> None:
        """Let stdout and stderr continue in a new file if theirs is full."""
        full = os.fstat(2)
        if full.st_size < LIMIT:
            return
        rotate_if_full(self._file)
        new = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # dup2 replaces a descriptor atomically: what another thread or a library writes meanwhile is in one of the
            # two files. stdout may lead elsewhere.
            for stream in _STANDARD_STREAMS:
                if os.path.samestat(os.fstat(stream), full):
                    os.dup2(new, stream)
        finally:
            os.close(new)


def rotate_if_full(file: Path) -> None:
    """Rename a log to `<name>.1` if it has `LIMIT` bytes or more, and the older ones accordingly.

    One that cannot be renamed is left as it is. A launch and an ending driver may call this at the same time; only one
    of them renames.
    """
    with suppress(OSError), file.open("rb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        opened = os.fstat(log.fileno())
        # Whoever had the lock before may have renamed it.
        if opened.st_size < LIMIT or not _is(file, opened):
            return
        for number in range(OLDER_FILES, 1, -1):
            with suppress(FileNotFoundError):
                _older(file, number - 1).replace(_older(file, number))
        file.replace(_older(file, 1))


def tail(file: Path, since: os.stat_result | None = None, lines: int = _TAIL_LINES) -> str:
    """Return the last lines of a log. since: the log's `fstat` at an earlier time; no line from before is returned."""
    start = since.st_size if since else 0
    if since is None or _is(file, since):
        text = _read_end(file, start)
    else:
        # It was rotated since then.
        text = _read_end(_older(file, 1), start) + _read_end(file, 0)
    return "\n".join(text.splitlines()[-lines:])


def write_to_stderr(line: str) -> None:
    """Write a line and its end to stderr in one piece, and flush it."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _read_end(file: Path, start: int) -> str:
    """Return the end of a file as text, at most `_TAIL_BYTES`, nothing from before byte `start`; '' without a file."""
    with suppress(FileNotFoundError), file.open("rb") as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(start, end - _TAIL_BYTES))
        return stream.read().decode(errors="replace")
    # A rotation has just renamed it, and not opened the new one yet.
    return ""


def _is(file: Path, status: os.stat_result) -> bool:
    """Return whether a path still leads to the file with this status."""
    try:
        return os.path.samestat(file.stat(), status)
    except FileNotFoundError:
        return False


def _older(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}.{number}")
