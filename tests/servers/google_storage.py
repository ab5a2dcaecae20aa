"""A server of Google Cloud Storage's interface for tests: fake-gcs-server, which Go builds."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassflow_dagster.local.go_program import go_program
from tests.servers.state_server import HOST, StateServer, running_process
from tests.support.answering import answers

BUCKET = "glassflow"
_PROGRAM, _MODULE, _VERSION = "fake-gcs-server", "github.com/fsouza/fake-gcs-server", "v1.56.1"


class GoogleServer(StateServer):
    """A running server."""

    @property
    def variables(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.endpoint}

    def definition(self, place: str | None = None) -> dict[str, str]:
        return {"url": f"gs://{BUCKET}/{place or uuid.uuid4().hex}", "endpoint": self.endpoint}


@contextmanager
def running_google_storage(folder: Path, port: int, seen: str | None = None) -> Iterator[GoogleServer]:
    """Run the server while the block runs; its objects are files of the folder.

    seen: its URL for its clients, where that is a proxy's.
    """
    program = go_program(_PROGRAM, _MODULE, _VERSION, print)
    (folder / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
    server, log = GoogleServer(port), folder / "google.log"
    options = {
        "scheme": "http", "host": HOST, "port": str(port), "filesystem-root": str(folder / "objects"),
        "external-url": seen or server.endpoint, "public-host": f"{HOST}:{port}", "log-level": "warn",
    }  # fmt: skip
    command = [str(program), *(f"-{name}={value}" for name, value in options.items())]
    bucket = f"{server.endpoint}/storage/v1/b/{BUCKET}"
    with running_process(command, log, lambda: answers(bucket)):
        yield server
