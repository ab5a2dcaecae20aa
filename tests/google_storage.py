"""A server of Google Cloud Storage's interface for tests: fake-gcs-server, which Go builds."""

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.config.model.state import State
from glassflow_dagster.local.go_program import go_program
from tests.answering import answers
from tests.waiting import wait_until

BUCKET = "glassflow"
_PROGRAM, _MODULE, _VERSION = "fake-gcs-server", "github.com/fsouza/fake-gcs-server", "v1.56.1"
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class GoogleServer:
    """A running server."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://{_HOST}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables by which it is found."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint}

    def definition(self, prefix: str | None = None) -> dict[str, str]:
        """Return a definition's `state`, with a prefix of the test's own."""
        return {"url": f"gs://{BUCKET}/{prefix or uuid.uuid4().hex}", "endpoint": self.endpoint}

    def state(self, prefix: str | None = None) -> State:
        return State.model_validate(self.definition(prefix))


@contextmanager
def running_google_storage(folder: Path, port: int, seen: str | None = None) -> Iterator[GoogleServer]:
    """Run the server while the block runs; its objects are files of the folder.

    seen: its URL for its clients, where that is a proxy's.
    """
    program = go_program(_PROGRAM, _MODULE, _VERSION, print)
    (folder / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
    server, log = GoogleServer(port), folder / "google.log"
    options = {
        "scheme": "http", "host": _HOST, "port": str(port), "filesystem-root": str(folder / "objects"),
        "external-url": seen or server.endpoint, "public-host": f"{_HOST}:{port}", "log-level": "warn",
    }  # fmt: skip
    command = [str(program), *(f"-{name}={value}" for name, value in options.items())]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            bucket = f"{server.endpoint}/storage/v1/b/{BUCKET}"
            wait_until(lambda: answers(bucket), "the server answers", evidence=log.read_text)
            yield server
        finally:
            process.kill()
            process.wait()
