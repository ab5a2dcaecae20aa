"""A server of Azure's blob storage for tests: Azurite, which npm installs. It has no hierarchical namespace."""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import requests

from glassflow_dagster.config.model.state import State
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from tests.waiting import wait_until

ACCOUNT, CONTAINER = "glassflow", "state"
KEY = base64.b64encode(b"a key of the tests alone").decode()
_PACKAGE, _VERSION = "azurite", "3.37.0"
_PROGRAM = "node_modules/.bin/azurite-blob"
_HOST = "127.0.0.1"
_NO_HEADERS = "\n" * 11
_API = "2021-08-06"  # the version of the interface by which the container is created


@dataclass(frozen=True)
class AzureServer:
    """A running server."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://{_HOST}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables by which it is found."""
        return {"AZURE_STORAGE_KEY": KEY, "GLASSFLOW_AZURE_SERVER": self.endpoint}

    def definition(self, prefix: str | None = None) -> dict[str, str]:
        """Return a definition's `state`, with a prefix of the test's own."""
        url = f"abfs://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/{prefix or uuid.uuid4().hex}"
        return {"url": url, "endpoint": self.endpoint}

    def state(self, prefix: str | None = None) -> State:
        return State.model_validate(self.definition(prefix))


@contextmanager
def running_azure_storage(folder: Path, port: int) -> Iterator[AzureServer]:
    """Run the server while the block runs; its blobs are files of the folder.

    Its key is in the environment of this process, for the drivers that it starts: a definition has no key of Azure's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server, log = AzureServer(port), folder / "azure.log"
    command = [str(_azurite()), "--location", str(folder / "blobs"), "--blobHost", _HOST, "--blobPort", str(port),
               "--skipApiVersionCheck", "--disableTelemetry", "--silent"]  # fmt: skip
    os.environ["AZURE_STORAGE_KEY"] = KEY
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
        )
        try:
            wait_until(lambda: _creates_container(server), "the server creates a container", evidence=log.read_text)
            yield server
        finally:
            process.kill()
            process.wait()


def _azurite() -> Path:
    """Return the program, which is installed once, into the cache."""
    folder = cache_folder() / _PACKAGE / _VERSION
    program = folder / _PROGRAM
    if not program.exists():
        with exclusive(folder):
            # Another process may have installed it meanwhile.
            if not program.exists():
                npm = shutil.which("npm")
                assert npm, "Azurite is installed by npm, which is not there; install Node.js"
                with filled(folder) as temporary:
                    package = f"{_PACKAGE}@{_VERSION}"
                    subprocess.run([npm, "install", "--silent", "--prefix", str(temporary), package], check=True)
    return program


def _creates_container(server: AzureServer) -> bool:
    """Create the container; return whether it is there."""
    date = format_datetime(datetime.now(UTC), usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:{_API}\n"
    # Method, eleven headers that are not sent, those that are, and the resource ("Authorize with Shared Key").
    text = f"PUT\n{_NO_HEADERS}{headers}/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    try:
        answer = requests.put(
            f"{server.endpoint}/{ACCOUNT}/{CONTAINER}?restype=container",
            headers={
                "x-ms-date": date, "x-ms-version": _API, "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            },
            timeout=10,
        )  # fmt: skip
    except requests.ConnectionError:
        return False
    assert answer.status_code in {201, 409}, answer.text
    return True
