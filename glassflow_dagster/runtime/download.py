"""Downloads jars from a Maven repository: several at once, each one verified and tried again after a fault."""

import base64
import hashlib
import http.client
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.durable import sync
from glassflow_dagster.runtime.jar_lock import Jar

# A repository answers so many requests of one client at once without refusing some.
_AT_ONCE = 8
# Seconds before each further attempt.
PAUSES = (1.0, 2.0, 4.0)
_TIMEOUT_SECONDS = 60
_CHUNK_BYTES = 1024 * 1024
# Lines about the progress.
_REPORTS = 5

# Answers that another attempt may change: timeout, too many requests, and all from 500.
_TRANSIENT = {408, 429}
_SERVER_ERRORS = 500


def download(jars: Sequence[Jar], repository: str, folder: Path, report: Callable[[str], None]) -> None:
    """Download jars into a folder; a jar appears there when its content has the SHA-256 of the lock.

    repository: the address (`https://...` or `file://...`), which may contain `user:password@`.
    report: receives the progress.
    Raises `GlassflowError` with the first jar that could not be downloaded and why, without a remedy; the other jars
    are then not downloaded to their end.
    """
    downloads, step = _Downloads(repository, folder), max(1, len(jars) // _REPORTS)
    with ThreadPoolExecutor(_AT_ONCE, "jars") as pool:
        try:
            for count, done in enumerate(as_completed([pool.submit(downloads.fetch, jar) for jar in jars]), 1):
                done.result()
                if count % step == 0 or count == len(jars):
                    report(f"{count} of {len(jars)} jars")
        except BaseException:
            downloads.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Transient(Exception):
    """A fault that another attempt may not meet."""


@dataclass
class _Downloads:
    """The downloads into one folder. stop: ends those that are under way."""

    repository: str
    folder: Path
    stop: threading.Event = field(default_factory=threading.Event)

    def fetch(self, jar: Jar) -> None:
        """Download one jar, with longer and longer pauses between attempts."""
        pauses = iter(PAUSES)
        while True:
            try:
                return self._try(jar)
            except _Transient as fault:
                pause = next(pauses, None)
                # The wait returns True where another download has failed meanwhile.
                if pause is None or self.stop.wait(pause):
                    raise GlassflowError(f"{jar.coordinates} ({fault})") from fault

    def _try(self, jar: Jar) -> None:
        """Download one jar beside its place, verify it, and move it there."""
        beside = self.folder / f".{jar.name}.part"
        try:
            digest = self._write(jar, beside)
        except urllib.error.HTTPError as error:
            if error.code in _TRANSIENT or error.code >= _SERVER_ERRORS:
                raise _Transient(f"HTTP {error.code}") from error
            raise GlassflowError(f"{jar.coordinates} (HTTP {error.code} {error.reason})") from error
        except urllib.error.URLError as error:
            raise _Transient(str(error.reason)) from error
        # ValueError: of an address without a scheme.
        except ValueError as error:
            raise GlassflowError(f"{jar.coordinates} ({error})") from error
        except (OSError, http.client.HTTPException) as error:
            raise _Transient(str(error) or type(error).__name__) from error
        # Also where the connection has ended early.
        if digest != jar.sha256:
            raise _Transient(f"its SHA-256 is {digest}, not {jar.sha256} as in jars.lock")
        sync(beside)
        beside.replace(self.folder / jar.name)

    def _write(self, jar: Jar, file: Path) -> str:
        """Write a jar's content to a file; return its SHA-256."""
        digest = hashlib.sha256()
        with urllib.request.urlopen(self._request(jar), timeout=_TIMEOUT_SECONDS) as answer, file.open("wb") as out:
            while chunk := answer.read(_CHUNK_BYTES):
                if self.stop.is_set():
                    raise _Transient("another jar has failed")
                digest.update(chunk)
                out.write(chunk)
        return digest.hexdigest()

    def _request(self, jar: Jar) -> urllib.request.Request:
        parts = urllib.parse.urlsplit(self.repository)
        credentials, _, host = parts.netloc.rpartition("@")
        address = parts._replace(netloc=host, path=f"{parts.path.rstrip('/')}/{jar.path}")
        request = urllib.request.Request(urllib.parse.urlunsplit(address), headers={"User-Agent": "glassflow-dagster"})
        if credentials:
            # Not for a server to which the repository redirects.
            encoded = base64.b64encode(urllib.parse.unquote(credentials).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {encoded}")
        return request
