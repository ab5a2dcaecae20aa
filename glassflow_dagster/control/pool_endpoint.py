"""How drivers find the process of a pool, and what they say to each other.

A pool's folder, `<state>/.pools/NAME`, has the file `endpoint.json` while its process accepts drivers. Each side sends
one line of JSON: a `Request`, then a `Reply`.
"""

import os
import re
import socket
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, SecretStr, ValidationError, field_serializer

from glassflow_dagster.control.heartbeat import make_pipeline_folder
from glassflow_dagster.definition.model.pipeline import POOL_NAME
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of

M = TypeVar("M", bound=BaseModel)

# The end of a driver's queries: each of their tasks has to notice that it was cancelled.
CLOSE_SECONDS = 30.0

_FILE = "endpoint.json"
# How often the JVM ended by itself, as the pool notes it.
CRASHES = "crashes.json"
# A line has some hundred bytes.
_LONGEST_LINE = 64 * 1024


class Endpoint(BaseModel):
    """The process of a pool: its id and start time, and the port of 127.0.0.1 where it takes requests.

    token: what a request must have; only the user who runs the pool may read the file.
    version: of this package.
    """

    pid: int
    started: str
    port: int
    token: str
    version: str = version("glassflow-dagster")

    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return start_of(self.pid) == self.started


class Request(BaseModel):
    """What is sent to a pool: attach the driver of `pipeline`, or with None say which pipelines are attached.

    checkpoint: the folder of the pipeline's checkpoint.
    """

    token: str
    pipeline: str | None
    checkpoint: str = ""


class Reply(BaseModel):
    """The answer: why not (`error`), or that the pool ends (`is_ending`); else the attached `pipelines`, or a session.

    session: its id in the JVM.
    port, secret: of the JVM's server for this driver.
    """

    error: str = ""
    is_ending: bool = False
    pipelines: list[str] = []
    session: str = ""
    port: int = 0
    secret: SecretStr = SecretStr("")

    @field_serializer("secret", when_used="json")
    def _plain(self, secret: SecretStr) -> str:
        return secret.get_secret_value()


def pool_folder(state: Path, name: str) -> Path:
    """Return the folder of a pool; raise `GlassflowError` if that is no name. state: the folder of all pipelines."""
    if not re.fullmatch(POOL_NAME, name):
        raise GlassflowError(f"{name!r} is not the name of a pool; use letters, digits, - and _")
    return state / ".pools" / name


def pools_in(state: Path) -> list[str]:
    """Return the names of the pools that have run on a state folder, sorted."""
    folder = state / ".pools"
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def read_endpoint(folder: Path) -> Endpoint | None:
    """Return the endpoint of the pool's running process; None where there is none."""
    try:
        endpoint = Endpoint.model_validate_json((folder / _FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValidationError):
        return None
    return endpoint if endpoint.is_alive() else None


def write_endpoint(folder: Path, endpoint: Endpoint) -> None:
    """Write the endpoint atomically, readable for this user alone."""
    make_pipeline_folder(folder)
    temporary = folder / f"{_FILE}.new"
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(endpoint.model_dump_json())
    temporary.replace(folder / _FILE)


def remove_endpoint(folder: Path) -> None:
    """Remove the endpoint: no driver finds the process any more."""
    (folder / _FILE).unlink(missing_ok=True)


def send_line(connection: socket.socket, message: BaseModel) -> None:
    """Send a message as one line; raises `OSError`."""
    connection.sendall(message.model_dump_json().encode() + b"\n")


def receive_line(connection: socket.socket, kind: type[M]) -> M | None:
    """Receive a message of one line; None when the connection has closed, or it is no such message."""
    line = b""
    while not line.endswith(b"\n"):
        received = connection.recv(_LONGEST_LINE)
        line += received
        if not received or len(line) > _LONGEST_LINE:
            return None
    try:
        return kind.model_validate_json(line)
    except ValidationError:
        return None


def forget_crashes(folder: Path) -> None:
    """Let pipelines in again that a pool holds back: its user starts it anew."""
    (folder / CRASHES).unlink(missing_ok=True)
